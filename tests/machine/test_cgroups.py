"""What a process's cgroup tells, and what a user's own cgroups cannot pretend."""

from __future__ import annotations

import pytest

from tfgpu_magic.machine.owners.cgroups import cgroup_name

CONTAINER = "0123456789abcdef" * 4
POD = "12345678-9abc-def0-1234-56789abcdef0"
BELOW = f"kubepods-besteffort.slice/kubepods-besteffort-pod{POD.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/user.slice/user-1000.slice/session-2.scope", "unit:user-1000.slice"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope", "unit:user-1000.slice"),
        ("/system.slice/jupyter-ann-singleuser.service", "unit:jupyter-ann-singleuser.service"),
        ("/jupyterhub.slice/jupyter-bob.service", "unit:jupyter-bob.service"),
        ("/labs.slice/labs-a.slice/jupyter-bob.service/own", "unit:jupyter-bob.service"),
        (f"/system.slice/docker-{CONTAINER}.scope", f"container:{CONTAINER}"),
        (f"/docker/{CONTAINER}", f"container:{CONTAINER}"),
        (f"/machine.slice/libpod-{CONTAINER}.scope/container", f"container:{CONTAINER}"),
        (f"/kubepods/burstable/pod{POD}/{CONTAINER}", f"pod:{POD}/{CONTAINER}"),
        (f"/kubepods.slice/{BELOW}/cri-containerd-{CONTAINER}.scope", f"pod:{POD}/{CONTAINER}"),
        (f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/crio-{CONTAINER}.scope", f"pod:{POD}/{CONTAINER}"),
    ],
)
def test_a_cgroup_that_root_has_made_is_named(path: str, name: str) -> None:
    assert cgroup_name(f"0::{path}\n") == name
    assert cgroup_name(f"12:cpu,cpuacct:/\n9:memory:{path}\n1:name=systemd:{path}\n0::/\n") == name


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/tfgpu",
        f"/user.slice/user-1.slicex/kubepods/burstable/pod{POD}/{CONTAINER}",
        f"/mine/kubepods/burstable/pod{POD}/{CONTAINER}",
        "/system.slice/a b.service",
        "/mine/jupyterhub.slice/jupyter-bob.service",
        "/a.slice/b.slice/c.slice/jupyter-bob.service",
        "/jupyterhub.slice/other.service",
        '/system.slice/"}.service',
        f"/system.slice/{'x' * 200}.service",
        f"/docker/{CONTAINER}0",
        "/user.slice/user-12345678901.slice",
    ],
)
def test_of_any_other_nothing_is_passed_on(path: str) -> None:
    assert cgroup_name(f"0::{path}\n") is None


def test_a_user_names_no_pod_by_cgroups_of_their_own() -> None:
    own = f"/user.slice/user-1000.slice/user@1000.service/kubepods.slice/pod{POD}/{CONTAINER}"

    assert cgroup_name(f"0::{own}\n") == "unit:user-1000.slice"


def test_of_a_long_text_the_beginning_is_looked_at() -> None:
    assert cgroup_name("0::/" + "a/" * 10_000 + "\n0::/user.slice/user-1000.slice\n") is None
