// States as server and kernel send them, for looking at: each a function of the time.

const GIB = 2 ** 30;
const gib = number => Math.round(number * GIB);

const A100 = {
  uuid: 'GPU-0',
  name: 'A100-80GB',
  used: gib(61.2),
  total: gib(80),
  free: gib(18.8),
  sensors: { utilisation: 93, temperature: 61, power: 287 }
};

const sketch = now => ({
  time: now,
  gpus: {
    0: A100,
    1: {
      uuid: 'GPU-1',
      name: 'A100-80GB',
      used: gib(0.4),
      total: gib(80),
      free: gib(79.6),
      sensors: { utilisation: 0 }
    },
    2: { uuid: 'GPU-2', name: 'Tesla T4', error: 'the GPU is lost' }
  },
  rows: {
    '0:2373': {
      gpu: '0',
      pid: 2373,
      kind: 'C',
      who: 'mine',
      owner: 'train.ipynb',
      path: 'work/train.ipynb',
      kernel: 'k1',
      state: 'busy',
      active: now - 1,
      held: gib(48),
      utilisation: 93,
      figures: { TensorFlow: { 'in use': gib(31.2), peak: gib(44.9) } },
      policy: 'limit 48 GiB'
    },
    '0:2533': {
      gpu: '0',
      pid: 2533,
      kind: 'C',
      who: 'mine',
      owner: 'eval.ipynb',
      path: 'work/eval.ipynb',
      kernel: 'k2',
      state: 'idle',
      active: now - 7300,
      held: gib(10.1),
      spare: true,
      utilisation: 0,
      unused: now - 7300,
      figures: { TensorFlow: { 'in use': gib(0.3), peak: gib(9.8) } },
      policy: 'growth'
    },
    '0:2811': { gpu: '0', pid: 2811, kind: 'C', who: 'other', owner: 'maria', held: gib(3.1) }
  }
});

const widget = now => {
  const state = sketch(now);
  state.gpus[0] = { ...A100, logical: 'GPU:0', policy: 'limit 48 GiB' };
  state.gpus[1] = { ...state.gpus[1], policy: 'hidden' };
  state.rows['0:2373'] = { ...state.rows['0:2373'], who: 'this', owner: 'this notebook' };
  return state;
};

const mixed = now => ({
  time: now,
  simulated: true,
  notes: [
    { text: 'Owners are not available in this container: start it with `--pid=host` to have them.', severity: 'note' }
  ],
  gpus: {
    0: { uuid: 'a', name: 'A100-SXM4-40GB', mig: true, total: gib(40) },
    '0.0': { uuid: 'b', instance: 0, name: 'MIG 3g.20gb', used: gib(12), total: gib(20), free: gib(8) },
    0.1: { uuid: 'c', instance: 1, name: 'MIG 3g.20gb', used: 0, total: gib(20), free: gib(20) },
    1: { uuid: 'd', name: 'GB10', unified: true, used: gib(33), total: gib(128), free: gib(95) },
    2: { name: 'Tesla T4', used: gib(14.9), total: gib(15), free: gib(0.1), error: 'processes are not listed' },
    10: { name: 'Tesla T4', total: gib(15) }
  },
  rows: {
    a: {
      gpu: '0.0',
      pid: 1,
      who: 'mine',
      owner: 'torch.ipynb',
      path: 'torch.ipynb',
      kernel: 'k4',
      state: 'idle',
      active: now - 400,
      held: gib(9),
      spare: true,
      figures: { PyTorch: { allocated: gib(6.1), reserved: gib(8.5) } }
    },
    b: { gpu: '0.0', pid: 2, who: 'mine', owner: 'python train.py', held: gib(3) },
    c: { gpu: '1', pid: 3, who: 'gone', owner: 'old.ipynb, ended', held: gib(20) },
    d: { gpu: '1', pid: 4, who: 'unknown', owner: 'unknown', held: gib(12) },
    e: { gpu: '1', pid: 5, who: 'other', owner: 'root' },
    f: { gpu: '1', pid: 6, kind: 'G', who: 'mine', owner: 'gnome-shell', held: gib(0.02) },
    g: { gpu: '2', who: 'unknown', owner: 'not listed', held: gib(14.9) }
  }
});

const hostile = now => {
  const state = sketch(now);
  const long = `${'very-long-name-'.repeat(600)}.ipynb`;
  const names = [
    '<img src=x onerror=alert(1)>',
    '${alert(1)}',
    '\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627.ipynb',
    long,
    '"\'><script>alert(1)</script>',
    '__proto__'
  ];
  state.rows = Object.fromEntries(
    names.map((owner, index) => [
      `key"'<${index}`,
      {
        gpu: '0',
        pid: index,
        who: 'mine',
        owner,
        path: owner,
        kernel: `k${index}`,
        state: index % 2 ? 'busy' : 'idle',
        active: now - 500,
        held: gib(8),
        ...(index % 2 === 0 && { spare: true }),
        figures: { TensorFlow: { 'in use': gib(1), peak: gib(3) } },
        policy: index ? 'growth' : long
      }
    ])
  );
  state.gpus[0] = { ...A100, name: '<b>A100</b>' };
  state.notes = [{ text: '<script>alert(1)</script> and `<code>`', severity: 'warning' }];
  return state;
};

export const crowd = (now, gpus = 8, each = 64) => {
  const state = { time: now, gpus: {}, rows: {} };
  for (let gpu = 0; gpu < gpus; gpu += 1) {
    let used = 0;
    for (let index = 0; index < each; index += 1) {
      const held = gib((60 / each) * (0.6 + 0.8 * Math.abs(Math.sin(index * 7 + gpu + Math.floor(now) / 5))));
      used += held;
      const mine = index % 3 > 0;
      state.rows[`${gpu}:${index}`] = {
        gpu: `${gpu}`,
        pid: 1000 + index,
        kind: 'C',
        who: mine ? 'mine' : 'other',
        owner: mine ? `experiment-${index}.ipynb` : `user${index}`,
        held,
        ...(mine && {
          path: `experiment-${index}.ipynb`,
          kernel: `k${index}`,
          state: index % 2 ? 'busy' : 'idle',
          active: now - 60 * index,
          ...(index % 2 === 0 ? { spare: true, unused: now - 600 * index } : { utilisation: index }),
          figures: { TensorFlow: { 'in use': Math.round(held * 0.4), peak: held } },
          policy: 'growth'
        })
      };
    }
    state.gpus[gpu] = {
      uuid: `u${gpu}`,
      name: 'H100-80GB',
      used,
      total: gib(80),
      free: gib(80) - used,
      sensors: { utilisation: 10 * gpu, temperature: 40 + gpu, power: 120 }
    };
  }
  return state;
};

const PLAIN = {
  sketch,
  widget,
  mixed,
  hostile,
  stale: now => ({ ...sketch(now), stale: now - 40 }),
  nobody: now => ({ ...sketch(now), gpus: { 0: { ...A100, used: gib(0.4), free: gib(79.6) } }, rows: {} }),
  error: now => ({
    time: now,
    error: 'The NVIDIA driver does not answer: NVML has been silent for 10 s. `nvidia-smi` may hang too.',
    gpus: {},
    rows: {}
  }),
  absent: () => ({
    time: 0,
    error: 'No NVIDIA driver was found: libnvidia-ml.so.1 could not be loaded.',
    absent: true,
    gpus: {},
    rows: {}
  }),
  crowd
};

/** A look for each notebook, as Python gives it: by name. */
function toned(state) {
  const names = [...new Set(Object.values(state.rows).map(row => row.kernel ?? row.owner))];
  const rows = Object.entries(state.rows).map(([key, row]) => [
    key,
    own(row) ? { ...row, tone: names.indexOf(row.kernel ?? row.owner) % 12 } : row
  ]);
  return { ...state, rows: Object.fromEntries(rows) };
}

/** What is used of each GPU and of no row of the reader's own, as Python reckons it. */
function shared(state) {
  const of = label => Object.values(state.rows).filter(row => row.gpu === label && own(row));
  const others = (label, { used }) => used - of(label).reduce((sum, row) => sum + (row.held ?? 0), 0);
  const gpus = Object.entries(state.gpus).map(([label, gpu]) => [
    label,
    gpu.used === undefined ? gpu : { ...gpu, others: { text: 'others', size: Math.max(0, others(label, gpu)) } }
  ]);
  return { ...state, gpus: Object.fromEntries(gpus) };
}

const own = row => row.who === 'mine' || row.who === 'this';

export const STATES = Object.fromEntries(
  Object.entries(PLAIN).map(([name, make]) => [name, now => shared(toned(make(now)))])
);

export function past(state, now, seconds = 600) {
  const times = Array.from({ length: seconds }, (_, index) => now - seconds + index);
  const [used, utilisation] = [{}, {}];
  for (const [label, gpu] of Object.entries(state.gpus)) {
    used[gpu.uuid ?? label] = times.map((_, index) =>
      gpu.used === undefined || (index > 250 && index < 270)
        ? null
        : gpu.used * (index < 200 ? 0.3 : 0.7 + 0.3 * Math.sin(index / 40) ** 2)
    );
    if (gpu.sensors) {
      const { utilisation: now } = gpu.sensors;
      utilisation[gpu.uuid ?? label] = times.map((_, index) =>
        index < 200 ? 0 : Math.round(now * (index % 97 > 60 ? 0.4 : 1))
      );
    }
  }
  return { times, used, utilisation };
}
