"""What earlier versions had, and links, plans and stored runs may still name (GONE)."""

LOAD = "AIPerf, GuideLLM and `vllm bench serve` put load on servers"
ALONE = f"Advice is on one request at a time now; {LOAD}."
# A sentence for the user, by the name in a link or a plan.
GONE = {
    "engine": f"Plans no longer ask servers of other engines ([[engine]]); {LOAD}.",
    "engines": f"The plan `engines` is gone; {LOAD}.",
    "loads": ALONE,
    "gpu_bandwidth": ALONE,
    "gpu_tflops": ALONE,
}
