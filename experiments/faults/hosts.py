#!/usr/bin/env python3
"""Trains on two hosts that are network namespaces of this machine, cuts the link between them and lets one die.

    python3 experiments/faults/hosts.py --work FOLDER [--quire build/native/bin/quire] [--rounds 3] [--output FILE]

Each host has its own address, host name and sshd; mpirun starts ranks over ssh, two on each. They are connected by a bridge
in a third namespace. Everything is temporary and is removed at the end. Exit code 1 when a check has failed. Needs root with
CAP_NET_ADMIN and CAP_SYS_ADMIN, Open MPI, and of Debian iproute2, openssh-server and openssh-client.
"""

import argparse
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time

import job
import namespaces

TIMEOUT = 5  # run.rank_timeout
BAR = TIMEOUT + 10.0
CASES = ("killed rank", "link down", "packets lost", "dead host")
# Writes how and when a rank has ended. It dies with the daemon that has started it, as the rank itself does.
WATCH = """trap : TERM INT
"$@"
code=$?
echo "$code $(date +%s.%N)" > "$QUIRE_ENDS/$OMPI_COMM_WORLD_RANK"
exit $code"""


class Study:
    def __init__(self, arguments):
        self.work, self.quire = arguments.work, arguments.quire
        self.config = job.prepare(arguments.work, arguments.quire)
        self.steps, self.watch = arguments.steps, arguments.watch
        self.of_mpirun = shlex.split(arguments.mpirun)
        self.starts = 0

    def train(self, folder, ranks, hosts=None, settings=()):
        """Trains a job on one host or, given hosts, on both of them with half of the ranks each."""
        self.starts += 1
        ends = self.work / f"ends-{self.starts}"
        shutil.rmtree(ends, ignore_errors=True)
        ends.mkdir()
        what = ["--resume", folder] if (folder / "config.yaml").exists() else [self.config, "--run-dir", folder]
        command = [*job.LAUNCH, "-np", ranks]
        if hosts:
            places = ",".join(f"{host.address}:{ranks // 2}" for host in hosts.all)
            command += ["--host", places, "--mca", "plm_rsh_agent", hosts.agent, "--mca", "oob_tcp_if_include", "eth0",
                        "--mca", "btl_tcp_if_include", "eth0", "-x", job.MARK, "-x", "QUIRE_ENDS", *self.of_mpirun]
        os.environ["QUIRE_ENDS"] = str(ends)
        command += ["setpriv", "--pdeathsig", "KILL", "sh", "-c", WATCH, "rank", self.quire, "train", *what,
                    f"schedule.steps={self.steps}", f"run.rank_timeout={TIMEOUT}s", *settings]
        if hosts:
            command = hosts.all[0].inside(*command)
        running = job.Job(command, f"{self.work}:{self.starts}", self.work / f"{self.starts}.log")
        running.ends = ends
        return running

    def finish(self, folder, ranks, hosts=None):
        running = self.train(folder, ranks, hosts, ["checkpoint.every=50"])
        if running.process.wait() != 0:
            raise RuntimeError(f"{running.said()}\ntraining on {ranks} ranks has failed")
        return running

    def same(self, hosts):
        """Compares four ranks on two hosts with four on one."""
        folders = [self.work / "one-host", self.work / "two-hosts"]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        self.finish(folders[0], 4)
        running = self.finish(folders[1], 4, hosts)
        found = [f"not bit for bit: {what}" for what in job.differences(folders[1], folders[0], self.steps)]
        if "4 ranks, 2 of them on this host" not in running.said():
            found.append("rank 0 does not say that it is one of two ranks on its host")
        return {"case": "training", "violations": found}

    def fault(self, case, hosts):
        """Trains for a while, lets the fault happen, watches what ends when, and goes on on one host."""
        folder = self.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        running = self.train(folder, 4, hosts, ["schedule.steps=100000", "checkpoint.every=10"])
        if not running.wait_until(lambda: job.last_line(folder).get("step", 0) >= 40, 120):
            raise RuntimeError(f"{running.said()}\ntraining on two hosts has failed")
        time.sleep(random.uniform(0, 1))
        b = hosts.all[1]
        ranks = {rank: process for rank, process in self.processes_of(running) if job.name_of(process) == "quire"}
        begun = time.time()
        if case == "killed rank":
            os.kill(ranks[3], signal.SIGKILL)
        else:
            b.cut(silently=case == "packets lost")
        if case == "dead host":
            b.kill_all()
        record = {"case": case, "violations": []}
        while (alive := self.processes_of(running)) and time.time() - begun < BAR:
            time.sleep(0.02)
        record["seconds"] = time.time() - begun
        record["ranks"] = {str(rank): self.end_of(running, rank, begun) for rank in sorted(ranks)}
        if alive:
            record["violations"].append(f"ranks {sorted({rank for rank, _ in alive})} lived on after {BAR:.0f} s")
        try:
            running.process.wait(max(0.0, begun + self.watch - time.time()))
            record["mpirun"] = {"code": running.process.returncode, "seconds": time.time() - begun}
        except subprocess.TimeoutExpired:
            record["mpirun"] = {"code": None, "seconds": None}
        record["left"] = sorted(job.name_of(process) for host in hosts.all for process in host.processes()
                                if job.name_of(process) in ("mpirun", "orted", "quire"))
        running.end()
        record["said"] = running.errors()
        record["mpirun"]["said"] = [line for line in running.said().splitlines()
                                    if any(word in line for word in ("mpirun", "ORTE", "daemon"))]
        record["violations"] += self.judge(case, record)
        if case == "dead host":
            b.begin_again()
        else:
            b.mend()
        hosts.wait_for_ssh()
        record["violations"] += job.damaged_checkpoints(self.quire, folder)
        saved = job.saved_steps(folder)[-1]
        resumed = self.train(folder, 2, None, [f"schedule.steps={saved + 20}"])
        if resumed.process.wait() != 0:
            record["violations"].append(f"it does not go on: {resumed.said()}")
        return record

    @staticmethod
    def processes_of(running):
        """Returns ranks with the numbers of their processes: quire, and those that watch it."""
        return [(int(environment["OMPI_COMM_WORLD_RANK"]), process)
                for process, environment in job.marked_processes(running.mark).items()
                if "OMPI_COMM_WORLD_RANK" in environment]

    @staticmethod
    def end_of(running, rank, begun):
        file = running.ends / str(rank)
        if not file.exists():
            return "killed"  # with its daemon, by mpirun or with its host
        code, at = file.read_text(encoding="utf-8").split()
        return {"code": int(code), "seconds": round(float(at) - begun, 2)}

    @staticmethod
    def judge(case, record):
        found = [f"rank {rank} ended with 0" for rank, end in record["ranks"].items()
                 if end != "killed" and end["code"] == 0]
        if record["mpirun"]["code"] == 0:
            found.append("mpirun ended with 0")
        if not record["said"] and record["mpirun"]["said"] and set(record["ranks"].values()) == {"killed"}:
            return found  # mpirun noticed first and ended all
        if len(record["said"]) != 1:
            found.append(f"{len(record['said'])} errors: {record['said']}")
            return found
        named = job.NAMED.search(record["said"][0])
        at_fault = ("3",) if case == "killed rank" else ("2", "3")
        if not named or named[1] not in at_fault or named[2] != "host-b" or not named[3] or not named[4]:
            found.append(f"the error names not a rank of host-b with step and operation: {record['said']}")
        return found


def table_lines(records):
    yield "| case | last rank ended after, s | ranks 0 and 1 | ranks 2 and 3 | mpirun | still there then | quire said " \
          "| not as promised |"
    yield "|---" * 8 + "|"
    for record in records:
        if "ranks" not in record:
            continue
        ends = {rank: "killed" if end == "killed" else f"{end['code']} after {end['seconds']:.1f} s"
                for rank, end in record["ranks"].items()}
        mpirun = record["mpirun"]
        told = "lived on" if mpirun["seconds"] is None else f"{mpirun['code']} after {mpirun['seconds']:.1f} s"
        cells = [record["case"], f"{record['seconds']:.1f}", f"{ends['0']}; {ends['1']}", f"{ends['2']}; {ends['3']}", told,
                 ", ".join(record["left"]),
                 " ".join(record["said"]).replace("quire: error: ", ""), "; ".join(record["violations"])]
        yield "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--quire", type=pathlib.Path, default="build/native/bin/quire",
                        help="the program that trains (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of the faults (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=300, help="of the run without faults (default: %(default)s)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--mpirun", default="", help="more options of mpirun, in one word")
    parser.add_argument("--watch", type=float, default=30,
                        help="seconds in which mpirun itself may end after a fault (default: %(default)s)")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    if missing := namespaces.what_is_missing():
        sys.exit(f"hosts: error: {missing}")
    if not arguments.quire.exists():
        sys.exit(f"hosts: error: {arguments.quire}: no such program; build it first, or give --quire")
    arguments.work, arguments.quire = arguments.work.resolve(), arguments.quire.resolve()
    study, records = Study(arguments), []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("hosts: error: ended by SIGTERM"))
    with namespaces.Hosts() as hosts:
        records.append(study.same(hosts))
        print(f"training on two hosts: {'; '.join(records[-1]['violations']) or 'the same bit for bit'}", flush=True)
        for _ in range(arguments.rounds):
            for case in arguments.cases:
                records.append(study.fault(case, hosts))
                print(f"{case}: {'; '.join(records[-1]['violations']) or 'as promised'}", flush=True)
    print("\n".join(table_lines(records)))
    if arguments.output:
        job.write_result(arguments.output, {"rank_timeout": TIMEOUT, "records": records})
    return 1 if any(record["violations"] for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
