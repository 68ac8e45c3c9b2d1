#!/usr/bin/env -S jsonnet -J ../vendor
// For dashboards/ of jupyterhub/grafana-dashboards, in its conventions: GPU memory by user of a Hub on Kubernetes.
local grafonnet = import 'github.com/grafana/grafonnet/gen/grafonnet-v11.1.0/main.libsonnet';
local dashboard = grafonnet.dashboard;
local ts = grafonnet.panel.timeSeries;
local prometheus = grafonnet.query.prometheus;

local common = import './common.libsonnet';

// kube_pod_info tells the namespace and the name of the pod whose UID the exporter has from its cgroup.
local byUser(metric) = |||
  sum(
    sum(
      label_replace(%s, "uid", "$1", "pod_uid", "(.+)")
        * on (uid) group_left(namespace, pod)
        max(
          kube_pod_info{namespace=~"$hub_name", pod=~"jupyter-.*"}
        ) by (uid, namespace, pod)
    ) by (namespace, pod)
      * on (namespace, pod) group_left(annotation_hub_jupyter_org_username)
      group(
        kube_pod_annotations{namespace=~"$hub_name", annotation_hub_jupyter_org_username=~"$user_name", pod=~"jupyter-.*"}
      ) by (pod, namespace, annotation_hub_jupyter_org_username)
  ) by (annotation_hub_jupyter_org_username, namespace)
||| % metric;

local panel(title, description, metric) =
  common.tsOptions
  + ts.new(title)
  + ts.panelOptions.withDescription(description)
  + ts.standardOptions.withUnit('bytes')
  + ts.queryOptions.withTargets([
    prometheus.new('$PROMETHEUS_DS', byUser(metric))
    + prometheus.withLegendFormat('{{ annotation_hub_jupyter_org_username }} - ({{ namespace }})'),
  ]);

local memory = panel(
  'GPU Memory Usage',
  |||
    Per user GPU memory, by the driver's account of each process.

    Requires `tfgpu collect` and `tfgpu exporter` of https://pypi.org/project/tfgpu-magic/ on each node with GPUs.
  |||,
  'tfgpu_magic_pod_held_bytes',
);

dashboard.new('User GPU Diagnostics Dashboard')
+ dashboard.withTags(['jupyterhub'])
+ dashboard.withUid('user-gpu-diagnostics-dashboard')
+ dashboard.withEditable(true)
+ dashboard.withVariables([
  common.variables.prometheus,
  common.variables.hub_name,
  common.variables.user_name,
])
+ dashboard.withPanels(
  grafonnet.util.grid.makeGrid([memory], panelWidth=24, panelHeight=12)
)
