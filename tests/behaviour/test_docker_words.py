"""What Docker is told: every limit has its words, and whose a container is can be read off it."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.sandbox.jail import MB, ResourceLimits, Spec, Unavailable
from toolgate.sandbox.jails import containers
from toolgate.sandbox.jails.containers import Engine, Mount, run_words, seen

pytestmark = pytest.mark.requirement("SBX-4", "SBX-2")

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0\n\r"), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)


def spec_of(workspace: Path, fixed: list[Path], hidden: list[Path]) -> Spec:
    return Spec(profile="shell", argv=("true",), workspace=workspace, fixed=tuple(fixed), hidden=tuple(hidden))


def test_every_limit_has_its_words() -> None:
    limits = ResourceLimits(seconds=30, memory=256 * MB, disk=64 * MB, files=10_000, processes=64, open_files=256)
    words = run_words(
        name="box", image="python:3.11", argv=("-c", "pass"), user=(1234, 5678), limits=limits, entrypoint="python3",
        volumes=("/data",), mounts=(Mount(Path("/w"), Path("/w"), writable=True),), environment={"A": "1"}, work="/w",
    )  # fmt: skip
    assert words == (
        "run", "--rm", "--interactive", "--sig-proxy=false", "--pull", "never",
        "--name", "box",
        "--label", f"toolgate.machine={containers.machine()}", "--label", f"toolgate.host={containers.host()}",
        "--network", "none", "--dns", "192.0.2.1", "--hostname", "sandbox", "--ipc", "none",
        "--memory", "268435456", "--memory-swap", "268435456", "--cpus", "1", "--pids-limit", "64",
        "--ulimit", "core=0", "--ulimit", "msgqueue=0", "--ulimit", "memlock=65536",
        "--ulimit", "nofile=256", "--ulimit", "fsize=67108864", "--ulimit", "cpu=35",
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "1234:5678",
        "--read-only",
        "--tmpfs", "/tmp:rw,exec,nosuid,nodev,size=67108864,nr_inodes=10000,uid=1234,gid=5678,mode=0700",
        "--workdir", "/w",
        "--mount", "type=tmpfs,dst=/sys,tmpfs-size=4096,readonly",
        "--mount", "type=tmpfs,dst=/data,tmpfs-size=4096,readonly",
        "--mount", "type=bind,src=/w,dst=/w",
        "--log-driver", "none", "--no-healthcheck",
        "--env", "A=1",
        "--entrypoint", "python3",
        "python:3.11", "-c", "pass",
    )  # fmt: skip


@given(names, names)
def test_no_name_of_a_file_adds_an_option(folder: str, file: str) -> None:
    source, target = Path("/", folder), Path("/", file)
    option, line = Mount(target, source).words()
    assert option == "--mount"
    assert next(csv.reader([line], strict=True)) == ["type=bind", f"src={source}", f"dst={target}", "readonly"]


@pytest.mark.parametrize("name", ["a\nb", "a\r\nb", "\r"])
def test_a_name_that_would_be_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(Unavailable, match="a line end in its name"):
        Mount(Path("/", name), Path("/w")).words()


def test_parts_of_a_workspace_and_the_folders_above_them_are_mounts_of_their_own(tmp_path: Path) -> None:
    hooks, key, outside = tmp_path / ".git" / "hooks", tmp_path / "deep" / "er" / "key", tmp_path.parent / "outside"
    hooks.mkdir(parents=True)
    key.parent.mkdir(parents=True)
    key.write_text("secret")
    outside.mkdir()
    (tmp_path / "link").symlink_to(key)
    (tmp_path / "away").symlink_to(outside)
    mounts = seen(spec_of(tmp_path, [hooks, tmp_path / "missing"], [tmp_path / "link", tmp_path / "away"]), [])
    assert mounts == (
        Mount(tmp_path, tmp_path, True),
        Mount(tmp_path / ".git", tmp_path / ".git", True),
        Mount(hooks, hooks, False),
        Mount(tmp_path / "deep", tmp_path / "deep", True),
        Mount(tmp_path / "deep" / "er", tmp_path / "deep" / "er", True),
        Mount(key, Path(os.devnull), False),
    )


def test_what_lies_in_a_hidden_folder_is_hidden_with_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert seen(spec_of(tmp_path, [tmp_path / "a" / "b"], [tmp_path / "a"]), []) == (
        Mount(tmp_path, tmp_path, True),
        Mount(tmp_path / "a", None, False),
    )


def test_a_process_is_known_by_more_than_its_number() -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    label = containers.host(other.pid)
    assert containers.lives(containers.host())
    assert containers.lives(label)
    other.communicate(b"\n")
    assert not containers.lives(label)
    assert not containers.lives(f"{os.getpid()}-1"), "the number is taken by another process"
    assert containers.lives("something else"), "what is not ours is left alone"


@pytest.mark.parametrize("image", ["", "-v/:/host", "--privileged", "a b", "x\ny", "é", "/etc"])
async def test_what_is_no_name_of_an_image_is_refused_before_the_engine_hears_it(image: str) -> None:
    with pytest.raises(Unavailable, match="is not a valid name of an image"):
        await Engine(["false"]).volumes(image)


async def test_the_reason_why_no_engine_can_be_had_is_given() -> None:
    with pytest.raises(Unavailable, match="there is no command 'no-such-engine' here"):
        await Engine(["no-such-engine"]).machine()
    with pytest.raises(Unavailable, match="gave no answer within"):
        await Engine(["sleep"]).ask("60", seconds=0.1)
    with pytest.raises(Unavailable, match="is set"):
        Engine([])


def test_the_engine_is_told_nothing_of_our_environment_but_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    environment = containers.environment()
    assert "OPENAI_API_KEY" not in environment
    assert environment["DOCKER_HOST"] == "unix:///nowhere"
