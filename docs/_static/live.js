// The live table on the front page: the package's own widget, and an example's figures as a kernel would send them.

addEventListener('DOMContentLoaded', async () => {
  const el = document.getElementById('live');
  if (!el) {
    return;
  }
  const here = new URL('_static/', new URL(document.documentElement.dataset.content_root, location.href));
  const [{ default: widget }, { STATES, past }] = await Promise.all(
    ['widget.js', 'states.mjs'].map(name => import(new URL(name, here)))
  );
  const now = () => Date.now() / 1000;
  const live = !matchMedia('(prefers-reduced-motion: reduce)').matches; // else drawn once, with a button
  const traits = { state: STATES.widget(now()), live };
  traits.history = past(traits.state, now());
  const listeners = {};
  const update = () => {
    traits.state = STATES.widget(now());
    listeners['change:state']?.forEach(listener => listener());
  };
  const model = {
    get: name => traits[name],
    on: (event, listener) => (listeners[event] ??= new Set()).add(listener),
    off: (event, listener) => listeners[event]?.delete(listener),
    send: ({ type }) => type === 'refresh' && update()
  };
  const { initialize, render } = widget();
  initialize({ model });
  render({ model, el });
  if (live) {
    setInterval(() => document.hidden || update(), 1000);
  }
});
