"""`tfgpu doctor`: each finding is true, on simulated machines, in a real cgroup and in files that stand in for one."""
