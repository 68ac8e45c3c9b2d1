"""Feeds an open panel recorded states ten times as fast as they come, and watches the page's heap meanwhile."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page

from tests.browser.scene import Scene
from tfgpu_magic.simgpu.neighbours import Holder
from tfgpu_magic.views import message

RATE = 10
"""Ticks a second."""

OLD_PAGE = """(() => {
  let stream = null;
  const aged = text => {  // a page that was opened ten minutes ago draws longer lines than a new one
    const full = JSON.parse(text);
    if (full.type !== 'full') return text;
    const times = Array.from({ length: 600 }, (_, index) => full.state.time - 600 + index);
    const wave = index => 0.6 + 0.4 * Math.sin(index / 40);
    const used = Object.values(full.state.gpus).map(gpu => [gpu.uuid, times.map((_, index) => gpu.used * wave(index))]);
    return JSON.stringify({ ...full, history: { times, used: Object.fromEntries(used) } });
  };
  window.WebSocket = class extends WebSocket {
    set onmessage(handler) {
      super.onmessage = handler;
      if (!handler || !this.url.includes('tfgpu-magic/stream')) return;
      stream = { socket: this, handler };
      super.onmessage = event => {
        super.onmessage = handler;
        handler({ data: aged(event.data) });
      };
    }
  };
  window.tfgpuFeed = (version, state, patches, milliseconds) => {
    const { socket, handler } = stream;
    socket.onmessage = null;
    let sequence = 0;
    const start = state.time;
    handler({ data: aged(JSON.stringify({ version, type: 'full', sequence, state, history: {} })) });
    setInterval(() => {
      const patch = { ...patches[sequence % patches.length], time: start + sequence + 1 };
      const tick = { version, type: 'tick', base: sequence, sequence: sequence + 1, patch };
      sequence += 1;
      window.tfgpuTicks = sequence;
      handler({ data: JSON.stringify(tick) });
    }, milliseconds);
  };
})()"""
"""Runs in the page before anything else does. `tfgpuFeed` is what the stream's messages come from afterwards."""

_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """How things are in the page when all garbage is collected; the heap is in megabytes, that of the DOM with it."""

    minute: float
    ticks: int
    heap: float
    nodes: int
    listeners: int


def record(scene: Scene, holders: Sequence[Holder], moving: int, seconds: int) -> list[message.State]:
    """Record states, one a second: some processes move, and each second one ends and one begins."""
    states = []
    for number in range(seconds):
        for holder in random.sample(holders, moving):
            holder.resize(f"{random.randrange(70, 200)}MiB")
        guest = scene.machine.add_neighbour(f"{random.randrange(70, 200)}MiB@{number % len(scene.machine.gpus())}")
        time.sleep(1)
        with scene.server.open("tfgpu-magic/snapshot") as answer:
            states.append(json.load(answer)["state"])
        guest.stop()
    return states


def soak(page: Page, states: Sequence[message.State], minutes: float) -> Iterator[Sample]:
    """Feed the panel with states round and round, and look at the heap after a third of a minute and from then on."""
    patches = [message.patch(before, after) for before, after in zip(states, [*states[1:], states[0]], strict=True)]
    page.evaluate("said => tfgpuFeed(...said)", [message.VERSION, states[0], patches, 1000 / RATE])
    devtools = page.context.new_cdp_session(page)
    devtools.send("HeapProfiler.enable")
    begun, warm = time.monotonic(), minutes * 60 / 3 if minutes < 1 else min(20 * minutes, 60)
    for number in range(_SAMPLES + 1):
        due = warm + (60 * minutes - warm) * number / _SAMPLES
        page.wait_for_timeout(max(0.0, 1000 * (begun + due - time.monotonic())))
        for _ in range(2):
            devtools.send("HeapProfiler.collectGarbage")
        used: dict[str, Any] = devtools.send("Runtime.getHeapUsage")
        counters: dict[str, Any] = devtools.send("Memory.getDOMCounters")
        yield Sample(
            minute=(time.monotonic() - begun) / 60,
            ticks=page.evaluate("tfgpuTicks"),
            heap=(used["usedSize"] + used.get("embedderHeapUsedSize", 0)) / 1e6,
            nodes=counters["nodes"],
            listeners=counters["jsEventListeners"],
        )
