"""Readable for everybody: axe-core's findings in light and dark mode, and widths of the page."""

from pathlib import Path

from playwright.sync_api import Page, expect

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
WIDTHS = (1400, 768, 390)
# Colours change at once: axe would measure the contrast of a half-way one.
AT_ONCE = "*, *::before, *::after { transition: none !important; animation: none !important; }"
# What is on another tab is not shown and has no faults. Axe would walk through it all, even when it
# is told to leave it out, so it is taken off the page for as long as axe looks.
FIND = """async ([within, options]) => {
    const away = [...document.querySelectorAll("[role=tabpanel]")]
        .filter((tab) => !tab.checkVisibility())
        .map((tab) => {
            const content = document.createDocumentFragment();
            content.append(...tab.childNodes);
            return [tab, content];
        });
    const found = await axe.run(within, { resultTypes: ["violations"], ...options })
        .finally(() => away.forEach(([tab, content]) => tab.append(content)));
    return found.violations.filter((each) => ["serious", "critical"].includes(each.impact))
        .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 120)}`));
}"""
CONTRAST = {"runOnly": ["color-contrast"]}  # all that depends on the mode


def faults(page: Page, within: str = "body") -> list[str]:
    """The serious and critical findings of axe-core, with their places. All rules are applied in
    light mode, contrast in dark mode too."""
    # plots that are not drawn yet
    expect(page.locator("[aria-label='Empty value']:visible")).to_have_count(0)
    page.evaluate(AXE)
    page.add_style_tag(content=AT_ONCE)
    found = page.evaluate(FIND, [within, {}])
    page.evaluate("document.body.classList.add('dark')")
    found += [f"dark: {fault}" for fault in page.evaluate(FIND, [within, CONTRAST])]
    page.evaluate("document.body.classList.remove('dark')")
    return found


def faults_of_screens(page: Page, within: str) -> list[str]:
    """The faults of a part of the page at each width, and the widths at which it overflows."""
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        if (needs := page.evaluate("document.documentElement.scrollWidth")) > width:
            found.append(f"{width} px wide it needs {needs}")
        found += [f"{width} px: {fault}" for fault in faults(page, within)]
    return found
