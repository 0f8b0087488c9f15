#!/usr/bin/env bash
# Runs MPIRUN with two hosts, node1 and node2, that are network namespaces on this machine, joined by TCP over a veth pair:
# tests/two_hosts.sh [--rate RATE] MPIRUN RANKS_A_HOST COMMAND [ARGUMENT...]. For Open MPI. Needs root; exit code 77 where
# namespaces are not allowed. RATE, such as 1gbit, is that of the wire in each direction.
set -euo pipefail
rate=
if [ "$1" = --rate ]; then rate=$2; shift 2; fi
mpirun=$1 ranks=$2
shift 2

a=normscope-$$-1 b=normscope-$$-2 scratch=$(mktemp -d)
clean() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$scratch"
}
trap clean EXIT
{ ip netns add "$a" && ip netns add "$b" && unshare --uts --mount true; } 2>/dev/null || exit 77
ip link add eth0 netns "$a" type veth peer name eth0 netns "$b" || exit 77
for host in "1 $a" "2 $b"; do
  read -r number name <<<"$host"
  ip -n "$name" address add 10.77.0.$number/24 dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
  [ -z "$rate" ] || ip netns exec "$name" tc qdisc add dev eth0 root tbf rate "$rate" burst 1mb latency 50ms
done

# Stands for ssh: HOST COMMAND. The names of both hosts, and its own, are known to what runs there.
printf '127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n' >"$scratch/hosts"
cat >"$scratch/agent" <<AGENT
#!/bin/sh
case \$1 in node1) name=$a ;; *) name=$b ;; esac
export HOST=\$1
shift
exec ip netns exec \$name unshare --uts --mount sh -c "hostname \$HOST; mount --bind $scratch/hosts /etc/hosts; \$*"
AGENT
chmod +x "$scratch/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec_line=$(printf '%q ' "$mpirun" -n $((2 * ranks)) --host "node1:$ranks,node2:$ranks" --bind-to none \
  --mca plm_rsh_agent "$scratch/agent" --mca btl self,tcp --mca btl_tcp_if_include 10.77.0.0/24 \
  --mca oob_tcp_if_include 10.77.0.0/24 "$@")
"$scratch/agent" node1 "cd $(printf %q "$PWD"); $exec_line"
