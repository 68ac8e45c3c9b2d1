// The dashboard for Grafana 11 and later: `jsonnet dashboard.jsonnet` makes dashboard.json. It needs no library.
local panels = import 'panels.libsonnet';
local source = { type: 'prometheus', uid: '${PROMETHEUS_DS}' };
local columns = 2;
local width = 24 / columns;
local height = 8;

local variable(name, label, metric) = {
  local labels = 'label_values(tfgpu_magic_%s, %s)' % [metric, name],
  name: name,
  label: label,
  type: 'query',
  datasource: source,
  definition: labels,
  query: { query: labels, refId: name },
  refresh: 2,
  sort: 1,
  multi: true,
  includeAll: true,
  allValue: '.*',
  current: { text: 'All', value: '$__all' },
};

local panel(id, one, at) = {
  id: id,
  type: one.kind,
  title: one.title,
  datasource: source,
  gridPos: { h: height, w: width, x: at.x, y: at.y },
  fieldConfig: {
    defaults: { unit: one.unit, min: 0 } + (if one.kind == 'timeseries' then { custom: { fillOpacity: 10 } } else {}),
    overrides: [],
  },
  options: if one.kind == 'timeseries' then { tooltip: { mode: 'multi', sort: 'desc' } } else {},
  targets: [
    {
      refId: std.char(std.codepoint('A') + number),
      datasource: source,
      expr: one.queries[number].expr,
      legendFormat: one.queries[number].legend,
      // What is a figure of the whole range, or a list, is asked once.
      instant: one.kind != 'timeseries',
      range: !self.instant,
      format: if one.kind == 'table' then 'table' else 'time_series',
    }
    for number in std.range(0, std.length(one.queries) - 1)
  ],
};

// Each row is a title of one line and its panels below, in columns.
local row(number) =
  local lines(one) = std.ceil(std.length(one.panels) / columns);
  local top = std.foldl(function(sum, one) sum + 1 + lines(one) * height, panels.rows[:number], 0);
  local one = panels.rows[number];
  [{ id: 100 * (number + 1), type: 'row', title: one.title, collapsed: false, panels: [], gridPos: { h: 1, w: 24, x: 0, y: top } }]
  + [
    panel(100 * (number + 1) + 1 + at, one.panels[at], {
      x: (at % columns) * width,
      y: top + 1 + std.floor(at / columns) * height,
    })
    for at in std.range(0, std.length(one.panels) - 1)
  ];

{
  uid: 'tfgpu-magic',
  title: 'GPU memory by user',
  description: 'Who holds how much of which GPU, for how long, and without use: figures of `tfgpu exporter`.',
  tags: ['gpu', 'jupyterhub', 'tfgpu_magic'],
  schemaVersion: 39,
  version: 1,
  editable: true,
  refresh: '1m',
  time: { from: 'now-24h', to: 'now' },
  timezone: 'browser',
  annotations: { list: [] },
  templating: {
    list: [
      { name: 'PROMETHEUS_DS', label: 'Prometheus', type: 'datasource', query: 'prometheus', refresh: 1 },
      variable('hostname', 'Machine', 'up'),
      variable('username', 'User', 'held_bytes'),
    ],
  },
  panels: std.flattenArrays([row(number) for number in std.range(0, std.length(panels.rows) - 1)]),
}
