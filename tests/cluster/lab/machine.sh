#!/bin/bash
# Becomes a machine: machine.sh LAB NAME ADDRESS GATEWAY KEEP... (folders to see under their own names).
set -e
lab=$1 name=$2 address=$3 gateway=$4; shift 4
hostname "$name"
mount --make-rprivate /
mount --bind "$lab" /mnt
own=/mnt/$name
mkdir -p "$own"/{root,tmp,shared} /mnt/shared
number=0
for folder in "$@"; do   # they may lie in what is about to be hidden
  mkdir -p "$own/keep$number"; mount --bind "$folder" "$own/keep$number"; number=$((number + 1))
done
mount -t tmpfs -o size=2g tmpfs /dev/shm
mount -t tmpfs tmpfs /run; mkdir -p /run/sshd
home=$(getent passwd root | cut -d: -f6)
mount --bind "$own/root" "$home"
mount --bind "$own/tmp" /tmp; chmod 1777 /tmp
mount --bind /mnt/shared /srv   # one folder for all machines, as NFS would be
number=0
for folder in "$@"; do
  mkdir -p "$folder"; mount --bind "$own/keep$number" "$folder"; number=$((number + 1))
done
mkdir -p "$home/.ssh"; chmod 700 "$home" "$home/.ssh"
cp /mnt/authorized_keys "$home/.ssh/"; touch "$home/.bashrc"
{ echo "127.0.0.1 localhost"; echo "${address%/*} $name"; } > "$own/hosts"
mount --bind "$own/hosts" /etc/hosts
: > "$own/resolv"; mount --bind "$own/resolv" /etc/resolv.conf   # no names: every look-up would stall
ssh-keygen -q -t ed25519 -N '' -f "$own/hostkey"
for _ in $(seq 200); do ip link show eth0 > /dev/null 2>&1 && break; sleep 0.05; done
ip link set lo up; ip addr add "$address" dev eth0; ip link set eth0 up
ip route add default via "$gateway"   # by which Ray finds its own address
exec /usr/sbin/sshd -D -e -f /dev/null -o Port=22 -o HostKey="$own/hostkey" -o PidFile=none \
  -o UsePAM=no -o StrictModes=no -o PasswordAuthentication=no -o UseDNS=no \
  -o PermitRootLogin=prohibit-password -o MaxStartups=100 -o MaxSessions=100
