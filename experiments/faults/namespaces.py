"""Makes two hosts that are network namespaces of this machine, each with an address, a host name and an sshd, for hosts.py.

A bridge in a third namespace connects them. All is gone at the end of `with Hosts()`, whatever ends it.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time

import job

PACKAGES = {"ip": "iproute2", "sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client",
            "mpirun": "openmpi-bin", "unshare": "util-linux", "setpriv": "util-linux"}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def what_is_missing():
    """Returns one line, or nothing."""
    missing = sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})
    if missing:
        return f"install what is missing: apt-get install {' '.join(missing)}"
    if os.geteuid() != 0:
        return "namespaces and their addresses need root"
    try:
        run("unshare", "--net", "--uts", "--mount", "true")
        run("unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other")
        run("unshare", "--net", "ip", "link", "add", "one", "type", "bridge")
    except RuntimeError as error:
        return f"this machine permits no network namespaces (CAP_NET_ADMIN and CAP_SYS_ADMIN, veth, bridge): {error}"
    return None


def processes_of(space):
    return [int(process) for process in run("ip", "netns", "pids", space).split()]


def remove_all(owner):
    """Removes what the process of this number has made."""
    for path in pathlib.Path("/run/netns").glob(f"quire{owner}[ab]"):
        job.kill_all(lambda: processes_of(path.name))
    for path in pathlib.Path("/run/netns").glob(f"quire{owner}[abs]*"):
        run("ip", "netns", "delete", path.name)
    for path in pathlib.Path(tempfile.gettempdir()).glob(f"quire-hosts-{owner}-*"):
        shutil.rmtree(path, ignore_errors=True)


def remove_left_over():
    """Removes what processes have left that were killed."""
    for path in pathlib.Path("/run/netns").glob("quire*switch"):
        owner = path.name[len("quire"):-len("switch")]
        if owner.isdigit() and not pathlib.Path(f"/proc/{owner}").exists():
            remove_all(owner)


class Host:
    """Holds a network namespace with an address; host name and mounts are those of its processes."""

    def __init__(self, hosts, letter, number):
        self.hosts, self.space, self.name = hosts, f"quire{os.getpid()}{letter}", f"host-{letter}"
        self.address, self.port = f"10.207.0.{number}", f"port-{letter}"

    def start(self):
        run("ip", "netns", "add", self.space)
        run("ip", "-n", self.hosts.switch, "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns",
            self.space)
        run("ip", "-n", self.hosts.switch, "link", "set", self.port, "master", "bridge", "up")
        run("ip", "-n", self.space, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", self.space, "link", "set", device, "up")
        folder = self.hosts.folder
        # sshd wants a folder /run/sshd, which is made in a /run of its own.
        options = ["-D", "-h", folder / "host_key", "-p", 22, "-f", "/dev/null", "-E", folder / f"{self.name}.log",
                   "-o", "PidFile=none", "-o", f"AuthorizedKeysFile={folder / 'key.pub'}", "-o", "StrictModes=no",
                   "-o", "UsePAM=no", "-o", "PermitRootLogin=yes", "-o", "PasswordAuthentication=no"]
        command = shlex.join(map(str, [shutil.which("sshd"), *options]))
        self.listener = subprocess.Popen(
            self.inside("sh", "-c", f"mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec {command}"))

    def cut(self, silently):
        """Cuts the link: it goes down, or what is sent over it is lost without a sign."""
        run("ip", "-n", self.hosts.switch, "link", "set", self.port, *(["nomaster"] if silently else ["down"]))

    def mend(self):
        run("ip", "-n", self.hosts.switch, "link", "set", self.port, "master", "bridge", "up")

    def begin_again(self):
        run("ip", "-n", self.hosts.switch, "link", "delete", self.port)
        run("ip", "netns", "delete", self.space)
        self.start()

    def inside(self, *command):
        script = f"hostname {self.name} && exec {shlex.join(map(str, command))}"
        return ["ip", "netns", "exec", self.space, "unshare", "--uts", "--mount", "sh", "-c", script]

    def processes(self):
        return processes_of(self.space)

    def kill_all(self):
        job.kill_all(lambda: processes_of(self.space))


class Hosts:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"quire-hosts-{os.getpid()}-"))
        self.switch = f"quire{os.getpid()}switch"
        self.all = [Host(self, "a", 1), Host(self, "b", 2)]

    def __enter__(self):
        remove_left_over()
        try:
            for name in ("key", "host_key"):
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name)
            self.agent = (f"ssh -F /dev/null -i {self.folder / 'key'} -o StrictHostKeyChecking=no -o LogLevel=ERROR "
                          f"-o UserKnownHostsFile=/dev/null")
            run("ip", "netns", "add", self.switch)
            run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", self.switch, "link", "set", "bridge", "up")
            for host in self.all:
                host.start()
            self.wait_for_ssh()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_for_ssh(self):
        until = time.monotonic() + 20
        while True:
            try:
                name = run(*self.all[0].inside(*shlex.split(self.agent), self.all[1].address, "hostname")).strip()
                break
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        if name != self.all[1].name:
            raise RuntimeError(f"{self.all[1].address} says that it is {name}, not {self.all[1].name}")

    def __exit__(self, *_):
        remove_all(os.getpid())
