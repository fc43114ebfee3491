"""Seconds as a line in the size of a pass (Line)."""

from dataclasses import dataclass


@dataclass
class Line:
    """Seconds as a line in the size of a pass, from measurements that fade."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        weight = 0.95
        if self.n > 3:
            y = min(y, 2 * self.at(x))  # a pause of the machine says nothing of a pass
        elif self.n and y < self.at(x) / 2:
            weight = 0.2  # then what was noted so far was such a pause
        old, new = (self.n, self.x, self.y, self.xx, self.xy), (1, x, y, x * x, x * y)
        faded = (weight * a + b for a, b in zip(old, new, strict=True))
        self.n, self.x, self.y, self.xx, self.xy = faded

    @property
    def spread(self) -> float:
        """The variance of the sizes; 0 if there is only one."""
        square = (self.x / self.n) ** 2
        variance = self.xx / self.n - square
        return variance if variance > 1e-6 * square else 0.0

    def at(self, x: float) -> float:
        mean, y, spread = self.x / self.n, self.y / self.n, self.spread
        slope = (self.xy / self.n - mean * y) / spread if spread else 0.0
        return max(y + max(slope, 0.0) * (x - mean), 0.05 * y)
