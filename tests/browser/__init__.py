"""The panel and the widget in a real browser, on a real server over simulated GPUs."""
