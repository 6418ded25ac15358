"""Of the first half hour on a GPU: its networks, a division for two queues, drifting sums, and the page."""
