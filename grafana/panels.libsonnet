// What the dashboard shows: of each panel the title, its kind, the unit, and the queries with their legends.
// `dashboard.jsonnet` lays it out. The variables are Grafana's: $hostname and $username are regular expressions.
local gpu = '{hostname=~"$hostname"}';
local user = '{hostname=~"$hostname", username=~"$username"}';
local hours(metric, range) = 'sum by (username) (increase(tfgpu_magic_%s_byte_seconds_total%s[%s])) / 2^30 / 3600'
                             % [metric, user, range];

{
  rows: [
    {
      title: 'Machines',
      panels: [
        {
          title: 'Machines that tell their figures',
          kind: 'stat',
          unit: 'none',
          queries: [
            { expr: 'sum(tfgpu_magic_up%s)' % gpu, legend: 'up' },
            { expr: 'count(tfgpu_magic_up%s == 0) or vector(0)' % gpu, legend: 'not up' },
          ],
        },
        {
          title: 'Alerts',
          kind: 'table',
          unit: 'none',
          queries: [{
            expr: 'count by (alertname, severity, hostname, gpu, username) (ALERTS{alertname=~"TfGpu.*", alertstate="firing"})',
            legend: '',
          }],
        },
        {
          title: 'GPU memory by machine',
          kind: 'timeseries',
          unit: 'bytes',
          queries: [
            { expr: 'sum by (hostname) (tfgpu_magic_gpu_memory_used_bytes%s)' % gpu, legend: '{{hostname}}' },
            { expr: 'sum by (hostname) (tfgpu_magic_gpu_memory_total_bytes%s)' % gpu, legend: '{{hostname}}, all' },
          ],
        },
      ],
    },
    {
      title: 'GPUs',
      panels: [
        {
          title: 'Memory in use',
          kind: 'timeseries',
          unit: 'percentunit',
          queries: [{
            expr: 'tfgpu_magic_gpu_memory_used_bytes%s / tfgpu_magic_gpu_memory_total_bytes' % gpu,
            legend: '{{hostname}} GPU {{gpu}}',
          }],
        },
        {
          title: 'Use',
          kind: 'timeseries',
          unit: 'percentunit',
          queries: [{ expr: 'tfgpu_magic_gpu_utilization_ratio%s' % gpu, legend: '{{hostname}} GPU {{gpu}}' }],
        },
        {
          title: 'Held without use',
          kind: 'timeseries',
          unit: 'bytes',
          queries: [{
            expr: 'sum by (hostname, gpu) (tfgpu_magic_held_unused_bytes%s)' % gpu,
            legend: '{{hostname}} GPU {{gpu}}',
          }],
        },
        {
          title: 'Temperature',
          kind: 'timeseries',
          unit: 'celsius',
          queries: [{ expr: 'tfgpu_magic_gpu_temperature_celsius%s' % gpu, legend: '{{hostname}} GPU {{gpu}}' }],
        },
        {
          title: 'Power',
          kind: 'timeseries',
          unit: 'watt',
          queries: [{ expr: 'tfgpu_magic_gpu_power_watts%s' % gpu, legend: '{{hostname}} GPU {{gpu}}' }],
        },
        {
          title: 'GPUs that cannot be read',
          kind: 'table',
          unit: 'none',
          queries: [{ expr: 'tfgpu_magic_gpu_error%s == 1' % gpu, legend: '{{hostname}} GPU {{gpu}}' }],
        },
      ],
    },
    {
      title: 'Users',
      panels: [
        {
          title: 'Held by user',
          kind: 'timeseries',
          unit: 'bytes',
          queries: [{ expr: 'sum by (username) (tfgpu_magic_held_bytes%s)' % user, legend: '{{username}}' }],
        },
        {
          title: 'Held without use by user',
          kind: 'timeseries',
          unit: 'bytes',
          queries: [{ expr: 'sum by (username) (tfgpu_magic_held_unused_bytes%s)' % user, legend: '{{username}}' }],
        },
        {
          title: 'Processes by user',
          kind: 'timeseries',
          unit: 'none',
          queries: [
            { expr: 'sum by (username) (tfgpu_magic_processes%s)' % user, legend: '{{username}}' },
            { expr: 'sum by (username) (tfgpu_magic_unused_processes%s)' % user, legend: '{{username}}, unused' },
          ],
        },
        {
          title: 'What is held of what the driver allows',
          kind: 'timeseries',
          unit: 'percentunit',
          queries: [{
            expr: 'tfgpu_magic_held_bytes%s / tfgpu_magic_limit_hard_bytes' % user,
            legend: '{{username}} {{hostname}} GPU {{gpu}}',
          }],
        },
      ],
    },
    {
      title: 'GiB-hours in the range that is shown',
      panels: [
        {
          title: 'GiB-hours by user',
          kind: 'bargauge',
          unit: 'none',
          queries: [{ expr: hours('held', '$__range'), legend: '{{username}}' }],
        },
        {
          title: 'Unused GiB-hours by user',
          kind: 'bargauge',
          unit: 'none',
          queries: [{ expr: hours('held_unused', '$__range'), legend: '{{username}}' }],
        },
        {
          title: 'Unused part of each user\'s GiB-hours',
          kind: 'bargauge',
          unit: 'percentunit',
          queries: [{
            expr: hours('held_unused', '$__range') + ' / (' + hours('held', '$__range') + ' > 0)',
            legend: '{{username}}',
          }],
        },
        {
          title: 'GiB-hours without use, by hour',
          kind: 'timeseries',
          unit: 'none',
          queries: [{ expr: hours('held_unused', '1h'), legend: '{{username}}' }],
        },
      ],
    },
  ],
}
