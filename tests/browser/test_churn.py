"""A view beside which processes come and go for long is no larger than a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.panel import recorded

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_CHURN = """async ([first, last]) => {
  const state = window.make(1e9);  // what each holds moves with the time, and which rows are in sight with that
  for (let number = first; number < last; number += 1) {
    const guest = { gpu: '0', pid: number, kind: 'C', who: 'mine', owner: 'guest', held: 2 ** 34 };
    window.model.set('state', { ...state, rows: { ...state.rows, [`0:${number}`]: guest } });
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    if (!document.querySelector(`[data-key="0:${number}"]`)) throw new Error(`${number} was not drawn`);
  }
  let count = 0;
  const nodes = document.createNodeIterator(document.querySelector('.tfgpu-view'));
  while (nodes.nextNode()) count += 1;
  return count;
}"""


def test_a_hundred_processes_that_came_and_went_leave_nothing_in_the_page(browser: Browser) -> None:
    page = recorded(browser, "crowd")
    few = page.evaluate(_CHURN, [10_000, 10_010])
    many = page.evaluate(_CHURN, [10_010, 10_110])
    page.close()

    assert few > 1000
    assert many == few
