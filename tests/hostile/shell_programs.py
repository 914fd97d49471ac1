"""Hostile programs for the shell lane: bash and what every Debian has beside it, perl for what bash can't say.

A `kernel` program makes one system call that no program in a jail has any business with. Its control makes a harmless one by
the same means, so a machine without perl does not look safe.
"""

# A program is one string, however long.
# ruff: noqa: E501

from tests.hostile.battery import Hostile
from toolgate.sandbox.jail import Feature

READ_OWN = 'echo mine > own && [ "$(cat own)" = mine ] && echo control ok'
MAKE_CHILD = "sh -c 'echo control ok'"
PERL_CALL = 'perl -e \'print syscall(`uname -m` =~ /aarch64/ ? 172 : 39) > 0 ? "control ok\\n" : "no system call\\n"\''


def kernel(
    name: str, numbers: tuple[int, int], arguments: str, *, feature: Feature = "processes", before: str = ""
) -> Hostile:
    """A program that makes one system call, by its numbers on x86_64 and on aarch64; -1 where there is none. Any answer but a
    refusal means that it got past the filter: the errors are those of permission, of no such call, and of no such process.
    perl gives the kernel the place of a string, so strings have to be variables."""
    x86, arm = numbers
    code = f"""
perl -e '
my $number = `uname -m` =~ /aarch64/ ? {arm} : {x86};
my ($root, $here, $tmpfs, $word, $room) = ("/", ".", "tmpfs", "toolgate", "\\0" x 128);
{before}
my $got = $number < 0 ? -1 : syscall($number, {arguments});
my $error = $number < 0 ? 1 : $! + 0;
print $got < 0 && grep({{ $error == $_ }} 1, 3, 13, 38) ? "held\\n" : "ESCAPED {name} gave $got, error $error\\n";
'
"""
    return Hostile(name, feature, code, PERL_CALL)


def connect(name: str, family: str, kind: str, address: str) -> Hostile:
    """A program that sends something to a socket."""
    code = f"""
perl -MSocket=:DEFAULT,inet_pton,pack_sockaddr_in6 -e '
$SIG{{ALRM}} = sub {{ print "held\\n"; exit 0 }}; alarm 3;
my $made = socket(my $s, {family}, {kind}, 0);
print "ESCAPED sent to {name}\\n" if $made && connect($s, {address}) && defined syswrite($s, "from inside");
print "held\\n";
'
"""
    return Hostile(
        name,
        "network",
        code,
        'perl -MSocket=:DEFAULT,inet_pton -e \'print inet_ntoa(INADDR_LOOPBACK) eq "127.0.0.1" ? "control ok\\n" : "no Socket\\n"\'',
    )


FILES = [
    Hostile(
        "read_secret",
        "files",
        "cat {secret_file} && echo ESCAPED read it || echo held",
        READ_OWN,
    ),
    Hostile(
        "read_by_climbing",
        "files",
        "cat ../../../../../../../../..{secret_file} && echo ESCAPED climbed || echo held",
        "mkdir -p a/b && echo mine > own && cat a/b/../../own > /dev/null && echo control ok",
    ),
    Hostile(
        "read_through_own_symlink",
        "files",
        "ln -s {secret_file} l && cat l && echo ESCAPED followed || echo held",
        "echo mine > own && ln -s own l && cat l > /dev/null && echo control ok",
    ),
    Hostile(
        "read_through_planted_symlink",
        "files",
        "cat {link} && echo ESCAPED followed || echo held",
        "[ -L {link} ] && echo control ok",
        workspace=True,
    ),
    Hostile(
        "write_through_planted_symlink",
        "files",
        "echo overwritten > {link} && echo ESCAPED wrote || echo held",
        "echo mine > own && echo control ok",
        workspace=True,
    ),
    Hostile(
        "climb_out_of_workspace",
        "files",
        "echo x > ../escaped && [ -e ../escaped ] && ls {outside} && echo ESCAPED wrote beside || echo held",
        READ_OWN,
        workspace=True,
    ),
    Hostile(
        "read_system_accounts",
        "files",
        "for f in /etc/passwd /etc/shadow /etc/ssh/sshd_config /etc/hosts /etc/machine-id; do"
        " head -c 64 $f > got 2> /dev/null && [ -s got ] && echo ESCAPED read $f; done; echo held",
        "head -c 4 /bin/sh > got && [ -s got ] && echo control ok",
    ),
    Hostile(
        "root_of_any_process",
        "files",
        "for p in self thread-self 1 $PPID {host_pid} $(ls /proc); do"
        " cat /proc/$p/root{secret_file} 2> /dev/null && echo ESCAPED by /proc/$p/root; done; echo held",
        READ_OWN,
    ),
    Hostile(
        "working_directory_of_any_process",
        "files",
        "for p in 1 $PPID {host_pid} $(ls /proc); do"
        " cat /proc/$p/cwd/../../../../../../../..{secret_file} 2> /dev/null && echo ESCAPED by /proc/$p/cwd; done; echo held",
        READ_OWN,
    ),
    Hostile(
        "descriptors_of_any_process",
        "files",
        "for f in /proc/{host_pid}/fd/* /proc/1/fd/* /proc/$PPID/fd/*; do"
        " timeout 0.2 head -c 200 $f 2> /dev/null | grep -a marker && echo ESCAPED by $f; done; echo held",
        "echo marker > own && head -c 200 own | grep -a marker && echo control ok",
    ),
    Hostile(
        "inherited_descriptors",
        "files",
        """
for n in $(seq 3 255); do
    if { : <&$n; } 2> /dev/null; then
        timeout 0.2 head -c 200 <&$n 2> /dev/null | grep -a marker && echo ESCAPED read descriptor $n
        [ -e /proc/self/fd/$n/keep ] && echo ESCAPED folder at descriptor $n
    fi
done
echo held
""",
        "echo mine > own && exec 7< own && cat <&7 > /dev/null && echo control ok",
    ),
    Hostile(
        "memory_of_host",
        "files",
        "for how in '<' '+<'; do perl -e 'open(my $f, $ARGV[0], $ARGV[1]) and print \"ESCAPED opened $ARGV[1]\\n\"' \"$how\" /proc/{host_pid}/mem; done; echo held",
        "perl -e 'open(my $f, \"<\", \"/bin/sh\") and print \"control ok\\n\"'",
    ),
    Hostile(
        "devices",
        "files",
        "for d in /dev/sd* /dev/vd* /dev/nvme* /dev/xvd* /dev/dm-* /dev/loop* /dev/mem /dev/kmem /dev/kmsg /dev/port /dev/kvm"
        " /dev/fuse /dev/net/tun /dev/vhost-* /dev/input/* /dev/tty0 /dev/tty1 /dev/ttyS0 /dev/console /dev/ptmx /dev/uinput"
        " /dev/mapper/control /dev/cpu/0/msr /dev/userfaultfd; do"
        " perl -e 'open(my $f, \"<\", $ARGV[0]) and print \"ESCAPED opened $ARGV[0]\\n\"' $d; done; echo held",
        "perl -e 'open(my $f, \"<\", \"/dev/null\") and print \"control ok\\n\"'",
    ),
    Hostile(
        "make_device",
        "files",
        "mknod d b 8 0 && echo ESCAPED made a block device; mknod m c 1 1 && head -c 1 m && echo ESCAPED made /dev/mem;"
        " mknod n c 1 5 && head -c 1 n && echo ESCAPED made a device; echo held",
        "mkfifo f && [ -p f ] && echo control ok",
    ),
    Hostile(
        "mount_anything",
        "files",
        "mkdir m; mount -t tmpfs none m && echo ESCAPED tmpfs; mount --bind / m && cat m{secret_file} && echo ESCAPED bind;"
        " mount -t proc proc m && echo ESCAPED proc; mount -t overlay o -o lowerdir=/,upperdir=m,workdir=m m && echo ESCAPED overlay;"
        " mount -o remount,rw / && echo ESCAPED remount; umount -l /proc && echo ESCAPED umount; umount /tmp && echo ESCAPED umount; echo held",
        "mount --version > /dev/null && echo control ok",
    ),
    Hostile(
        "write_outside",
        "files",
        "echo x > {outside}/shell_wrote && echo ESCAPED wrote; mkdir {outside}/d && echo ESCAPED folder;"
        " ln -s x {outside}/s && echo ESCAPED link; mkfifo {outside}/f && echo ESCAPED pipe; echo held",
        READ_OWN,
    ),
    Hostile(
        "change_outside",
        "files",
        "rm {outside}/keep && echo ESCAPED removed; mv {outside}/keep {outside}/gone && echo ESCAPED renamed;"
        " truncate -s 0 {outside}/keep && echo ESCAPED truncated; echo x >> {outside}/keep && echo ESCAPED appended; echo held",
        "echo mine > own && truncate -s 0 own && mv own other && rm other && echo control ok",
    ),
    Hostile(
        "metadata_outside",
        "files",
        "chmod 777 {secret_file} && echo ESCAPED chmod; chown 12345 {secret_file} && echo ESCAPED chown;"
        " touch -h -d 2001-01-01 {secret_file} && [ $(date -r {secret_file} +%Y) = 2001 ] && echo ESCAPED time; chmod 777 {outside} && echo ESCAPED chmod folder; echo held",
        "echo mine > own && chmod --version > /dev/null && touch --version > /dev/null && echo control ok",
    ),
    Hostile(
        "attributes_outside",
        "files",
        """
perl -e '
my $number = `uname -m` =~ /aarch64/ ? 5 : 188;
my ($path, $name, $value) = ("{secret_file}", "user.toolgate", "x");
print syscall($number, $path, $name, $value, 1, 0) >= 0 ? "ESCAPED set an attribute\\n" : "held\\n";
'
""",
        PERL_CALL,
    ),
    Hostile(
        "hard_link",
        "files",
        "ln {secret_file} l && cat l && echo ESCAPED linked; ln own {outside}/linked && echo ESCAPED out; echo held",
        "echo mine > own && ln own l && cat l > /dev/null && echo control ok",
    ),
    Hostile(
        "write_system",
        "files",
        "for d in / /usr /usr/bin /usr/lib /usr/local/bin /bin /lib /etc /var /opt /root /home /boot /srv /run /dev /proc /sys; do"
        " echo x > $d/toolgate_escaped && { echo ESCAPED wrote in $d; rm -f $d/toolgate_escaped; }; done; echo held",
        READ_OWN,
    ),
    Hostile(
        "overwrite_programs",
        "files",
        "for f in /proc/self/exe /bin/sh /usr/bin/env /proc/1/exe /proc/$PPID/exe; do"
        " perl -e 'open(my $f, \"+<\", $ARGV[0]) and print \"ESCAPED may write $ARGV[0]\\n\"' $f; done; echo held",
        "echo x > own && perl -e 'open(my $f, \"+<\", \"own\") and print \"control ok\\n\"'",
    ),
    Hostile(
        "change_root",
        "files",
        "perl -e 'chroot(\".\") and print \"ESCAPED chroot\\n\"'; chroot / /bin/true && echo ESCAPED chroot; echo held",
        "perl -e 'chdir(\"/\") and chdir($ENV{HOME}) and print \"control ok\\n\"'",
    ),
    Hostile(
        "open_by_handle",
        "files",
        """
perl -e '
my ($name, $open) = `uname -m` =~ /aarch64/ ? (264, 265) : (303, 304);
my $handle = pack("Ii", 128, 0) . ("\\0" x 128);
my $mount = pack("i", 0);
for my $name_of ("/", "/usr", ".", "{secret_file}") {
    my $path = "$name_of";
    syscall($name, -100, $path, $handle, $mount, 0);
    my $fd = syscall($open, -100, $handle, 0);
    print "ESCAPED opened a handle of $path\\n" if $fd >= 0;
}
print "held\\n";
'
""",
        PERL_CALL,
    ),
    Hostile(
        "find_it_anywhere",
        "files",
        "find / -name $(basename {secret_file}) -type f 2> /dev/null | while read f; do cat $f && echo ESCAPED found at $f; done; echo held",
        "echo mine > own_file && find . -name own_file | grep -q own_file && echo control ok",
        seconds=20.0,
    ),
    Hostile(
        "kernel_files",
        "files",
        "grep -v '^0* ' /proc/kallsyms 2> /dev/null | grep -q . && echo ESCAPED addresses of the kernel;"
        " for f in /proc/kcore /proc/kmsg /proc/sysrq-trigger /proc/timer_list /proc/keys /sys/kernel/debug /sys/kernel/tracing"
        " /sys/firmware /sys/kernel/security; do"
        " head -c 1 $f 2> /dev/null | grep -q . && echo ESCAPED read $f; ls $f/* > /dev/null 2>&1 && echo ESCAPED listed $f; done; echo held",
        "head -c 1 /bin/sh | grep -aq . && echo control ok",
    ),
    Hostile(
        "kernel_switches",
        "files",
        "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/overcommit_memory /proc/sysrq-trigger /proc/sys/fs/binfmt_misc/register"
        " /proc/sys/kernel/hostname /proc/sys/net/ipv4/ip_forward /proc/sys/user/max_user_namespaces /sys/kernel/uevent_helper /sys/power/state; do"
        " perl -e 'open(my $f, \"+<\", $ARGV[0]) and print \"ESCAPED may write $ARGV[0]\\n\"' $f; done; echo held",
        "echo x > own && perl -e 'open(my $f, \"+<\", \"own\") and print \"control ok\\n\"'",
    ),
    Hostile(
        "control_groups",
        "files",
        "for d in /sys/fs/cgroup /sys/fs/cgroup/*; do mkdir $d/toolgate_escaped && { echo ESCAPED made a group in $d; rmdir $d/toolgate_escaped; }; done;"
        " find /sys/fs/cgroup -name release_agent -writable 2> /dev/null | grep . && echo ESCAPED release_agent; echo held",
        "mkdir own && [ -d own ] && echo control ok",
    ),
    kernel("pivot_root", (155, 41), "$here, $here", feature="files"),
    kernel("new_mount_api", (430, 430), "$tmpfs, 0", feature="files"),
    kernel("copy_of_a_mount", (428, 428), "-100, $root, 1", feature="files"),
]  # fmt: skip

ENVIRONMENT = [
    Hostile(
        "own_environment",
        "environment",
        "env | grep {secret_env} && echo ESCAPED inherited; tr '\\0' '\\n' < /proc/self/environ | grep {secret_env} && echo ESCAPED; echo held",
        "env | grep -q ^HOME= && env | grep -q ^PATH= && echo control ok",
    ),
    Hostile(
        "environment_of_any_process",
        "environment",
        "for p in 1 $PPID {host_pid} $(ls /proc); do"
        " tr '\\0' '\\n' < /proc/$p/environ 2> /dev/null | grep {secret_env} && echo ESCAPED of $p; done; echo held",
        "X=1 env | grep -q ^X=1 && echo control ok",
    ),
    Hostile(
        "secrets_of_known_names",
        "environment",
        "env | grep -iE '(secret|token|passw|api_?key|credential|ssh_auth_sock|_PAT=)' && echo ESCAPED; echo held",
        "env | grep -q ^PATH= && echo control ok",
    ),
    Hostile(
        "homes_of_the_host",
        "environment",
        "for d in /root /home /home/* /etc/skel; do [ -n \"$(find $d -maxdepth 1 -type f 2> /dev/null)\" ] && echo ESCAPED listed $d; done; echo held",
        ": > own && [ -n \"$(ls -A .)\" ] && echo control ok",
    ),
    Hostile(
        "name_of_the_host",
        "environment",
        "cat /proc/{host_pid}/cmdline /proc/{host_pid}/status /proc/{host_pid}/maps 2> /dev/null | grep -a . && echo ESCAPED read of the host; echo held",
        READ_OWN,
    ),
]  # fmt: skip

NETWORK = [
    connect("loopback_tcp", "AF_INET", "SOCK_STREAM", "pack_sockaddr_in({host_port}, INADDR_LOOPBACK)"),
    connect("loopback_tcp_by_another_address", "AF_INET", "SOCK_STREAM", 'pack_sockaddr_in({host_port}, inet_aton("127.9.9.9"))'),
    connect("loopback_tcp6", "AF_INET6", "SOCK_STREAM", 'pack_sockaddr_in6({host_port}, inet_pton(AF_INET6, "::1"))'),
    connect("loopback_udp", "AF_INET", "SOCK_DGRAM", "pack_sockaddr_in({host_port}, INADDR_LOOPBACK)"),
    connect("internet_tcp", "AF_INET", "SOCK_STREAM", 'pack_sockaddr_in(53, inet_aton("1.1.1.1"))'),
    connect("internet_udp", "AF_INET", "SOCK_DGRAM", 'pack_sockaddr_in(53, inet_aton("1.1.1.1"))'),
    connect("metadata_of_the_cloud", "AF_INET", "SOCK_STREAM", 'pack_sockaddr_in(80, inet_aton("169.254.169.254"))'),
    connect("unix_socket", "AF_UNIX", "SOCK_STREAM", 'pack_sockaddr_un("{host_socket}")'),
    connect("unix_abstract_socket", "AF_UNIX", "SOCK_STREAM", 'pack("Sa*", 1, "\\0{host_abstract}")'),
    connect("docker_socket", "AF_UNIX", "SOCK_STREAM", 'pack_sockaddr_un("/var/run/docker.sock")'),
    Hostile(
        "bash_tcp",
        "network",
        "timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{host_port} && echo hello >&3 && echo ESCAPED connected' 2> /dev/null; echo held",
        "exec 3<>own && echo hello >&3 && echo control ok",
    ),
    Hostile(
        "names",
        "network",
        "perl -e 'print \"ESCAPED resolved\\n\" if gethostbyname(\"example.com\"); print \"held\\n\"'; getent hosts example.com && echo ESCAPED; echo held",
        "getent --version > /dev/null && echo control ok",
        seconds=15.0,
    ),
    Hostile(
        "every_family",
        "network",
        """
perl -e '
my $number = `uname -m` =~ /aarch64/ ? 198 : 41;
for my $family (1 .. 46) { for my $kind (1, 2, 3, 5) {
    print "ESCAPED family $family kind $kind\\n" if syscall($number, $family, $kind, 0) >= 0;
} }
print "held\\n";
'
""",
        PERL_CALL,
    ),
    Hostile(
        "listen",
        "network",
        "perl -MSocket -e 'socket(my $s, AF_INET, SOCK_STREAM, 0); $s and fileno($s) and bind($s, pack_sockaddr_in(0, INADDR_ANY)) and listen($s, 1)"
        " and print \"ESCAPED listens\\n\"; print \"held\\n\"'",
        "perl -MSocket -e 'print \"control ok\\n\" if AF_INET == 2'",
    ),
    kernel("key_ring_of_the_network", (41, 198), "16, 3, 0", feature="network"),
    kernel("packets", (41, 198), "17, 3, 0x300", feature="network"),
    kernel("network_of_init", (308, 268), "fileno($ns), 0", feature="network", before='open(my $ns, "<", "/proc/1/ns/net") or $number = -1;'),
]  # fmt: skip

PROCESSES = [
    Hostile(
        "many_children",
        "processes",
        """
for n in $(seq 1 200); do sleep 4 & done 2> /dev/null
alive=0; for p in $(jobs -pr); do kill -0 $p 2> /dev/null && alive=$((alive + 1)); done
[ $alive -gt 70 ] && echo ESCAPED $alive at once
echo held
""",
        "sleep 0.1 & sleep 0.1 & sleep 0.1 & wait && echo control ok",
        alone=True,
    ),
    Hostile("fork_bomb", "processes", "bomb() { bomb | bomb & }; bomb; sleep 60", MAKE_CHILD, seconds=1.5, alone=True),
    Hostile(
        "fork_bomb_that_ignores_signals",
        "processes",
        "perl -e '$SIG{$_} = \"IGNORE\" for qw(TERM INT HUP QUIT ALRM XCPU CHLD); while (1) { fork }'",
        "perl -e 'my $p = fork; exit 0 unless $p; waitpid($p, 0); print \"control ok\\n\"'",
        seconds=1.5,
        alone=True,
    ),
    Hostile(
        "daemon_that_outlives",
        "processes",
        "setsid nohup bash -c 'trap \"\" TERM HUP INT; sleep 1; echo x > {outside}/late; sleep 300' > /dev/null 2>&1 < /dev/null & echo held",
        "setsid --version > /dev/null && echo control ok",
    ),
    Hostile(
        "daemon_by_two_forks",
        "processes",
        "perl -MPOSIX -e 'exit 0 if fork; setsid(); exit 0 if fork; close STDIN; close STDOUT; close STDERR; sleep 300'; echo held",
        "perl -MPOSIX -e 'print \"control ok\\n\" if defined &POSIX::setsid'",
    ),
    Hostile(
        "child_that_keeps_the_pipe",
        "processes",
        "(trap '' TERM HUP; sleep 300) & (sleep 300) & echo held",
        MAKE_CHILD,
        seconds=2.0,
    ),
    Hostile(
        "become_root",
        "processes",
        "perl -e '$< = 0; $> = 0; ($(, $)) = (0, 0); exit 0' ; perl -e '$> = 0; $< = 0; print \"ESCAPED root\\n\" if open(my $f, \">\", \"/proc/sysrq-trigger\")';"
        " setpriv --reuid 0 --regid 0 --clear-groups id -u 2> /dev/null | grep -qx 0 && [ $(id -u) != 0 ] && echo ESCAPED setpriv; echo held",
        "[ $(id -u) -gt 0 ] && echo control ok",
    ),
    Hostile(
        "setuid_programs",
        "processes",
        "for s in 'su -c id' 'sudo -n id' 'pkexec id' 'newgrp root' 'doas id'; do timeout 2 $s < /dev/null 2> /dev/null | grep 'uid=0' && echo ESCAPED by $s; done;"
        " cp /usr/bin/id own && chmod 4755 own && ./own -u | grep -qx 0 && echo ESCAPED setuid file; echo held",
        "id -u > /dev/null && cp /usr/bin/id own && [ -s own ] && echo control ok",
    ),
    Hostile(
        "capabilities",
        "processes",
        """
perl -e '
my ($capget, $prctl) = `uname -m` =~ /aarch64/ ? (90, 167) : (125, 157);
my $header = pack("Ii", 0x20080522, 0);
my $sets = "\\xff" x 24;
die if syscall($capget, $header, $sets) < 0;
print "ESCAPED capabilities " . unpack("H*", $sets) . "\\n" if $sets ne "\\0" x 24;
print "ESCAPED may gain privileges\\n" if syscall($prctl, 39, 0, 0, 0, 0) != 1;
print "held\\n";
'
""",
        PERL_CALL,
    ),
    Hostile(
        "new_namespaces",
        "processes",
        "for n in -U -Ur -m -p -n -i -u -C -T; do unshare $n true 2> /dev/null && echo ESCAPED unshare $n; done; echo held",
        "unshare --version > /dev/null && echo control ok",
    ),
    Hostile(
        "namespaces_of_others",
        "processes",
        "for p in 1 {host_pid} $PPID; do for n in -m -n -p -U -i -u; do nsenter -t $p $n true 2> /dev/null && echo ESCAPED nsenter $p $n; done; done; echo held",
        "nsenter --version > /dev/null && echo control ok",
    ),
    Hostile(
        "clone_into_namespaces",
        "processes",
        """
perl -e '
my ($clone, $clone3) = `uname -m` =~ /aarch64/ ? (220, 435) : (56, 435);
for my $flag (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000) {
    my $child = syscall($clone, $flag | 17, 0, 0, 0, 0);
    if ($child == 0) { exit 0 }
    print "ESCAPED clone $flag\\n" if $child > 0;
}
my $arguments = pack("Q8", 0x10000000, 0, 0, 0, 17, 0, 0, 0);
my $child = syscall($clone3, $arguments, 64);
if ($child == 0) { exit 0 }
print "ESCAPED clone3\\n" if $child > 0;
print "held\\n";
'
""",
        "perl -e 'my $p = fork; exit 0 unless $p; waitpid($p, 0); print \"control ok\\n\"'",
    ),
    Hostile(
        "see_the_host",
        "processes",
        "[ -e /proc/{host_pid}/status ] && head -c 10 /proc/{host_pid}/status && echo ESCAPED sees the host;"
        " [ $(ls -d /proc/[0-9]* 2> /dev/null | wc -l) -gt 20 ] && echo ESCAPED sees many; echo held",
        "ls -d /bin /usr > /dev/null && echo control ok",
    ),
    kernel("trace_the_host", (101, 117), "16, {host_pid}, 0, 0"),
    kernel("trace_seize_parent", (101, 117), "0x4206, getppid(), 0, 0"),
    kernel("trace_me", (101, 117), "0, 0, 0, 0"),
    kernel("read_memory_of_host", (310, 270), "{host_pid}, $v, 1, $v, 1, 0", before='my $b = "x" x 8; my $v = pack("pQ", $b, 8);'),
    kernel("write_memory_of_parent", (311, 271), "getppid(), $v, 1, $v, 1, 0", before='my $b = "x" x 8; my $v = pack("pQ", $b, 8);'),
    kernel("handle_of_the_host", (434, 434), "{host_pid}, 0"),
    kernel("take_descriptor", (438, 438), "3, 0, 0"),
    kernel("limits_of_the_host", (302, 261), "{host_pid}, 7, 0, $b", before='my $b = "x" x 16;'),
    kernel("compare_with_host", (312, 272), "{host_pid}, {host_pid}, 0, 0, 0"),
    kernel("kernel_keys", (250, 219), "0, -3, 1"),
    kernel("add_key", (248, 217), "$type, $word, $value, 1, -3", before='my ($type, $value) = ("user", "x");'),
    kernel("kernel_programs", (321, 280), "0, $a, 72", before='my $a = pack("I4", 2, 4, 4, 1) . ("\\0" x 56);'),
    kernel("io_uring", (425, 425), "8, $p", before='my $p = "\\0" x 120;'),
    kernel("userfaultfd", (323, 282), "1"),
    kernel("perf_events", (298, 241), "$a, 0, -1, -1, 0", before='my $a = pack("II", 1, 112) . ("\\0" x 104);'),
    kernel("personality", (135, 92), "0x0040000"),
    kernel("modify_ldt", (154, -1), "0, $b, 16", before='my $b = "x" x 16;'),
    kernel("kernel_module", (313, 273), "0, $here, 0"),
    kernel("kernel_log", (103, 116), "10, 0, 0"),
    kernel("name_the_machine", (170, 161), "$word, 8"),
    kernel("accounting", (163, 89), "0"),
    kernel("quotas", (179, 60), "0x80000700, 0, 0, $room"),
    kernel("watch_the_filesystem", (300, 262), "0, 0"),
    kernel("secret_memory", (447, 447), "0"),
]  # fmt: skip

HOG = 'perl -e \'my @a; for (1 .. {mb}) { push @a, "x" x (1 << 20); } print "{said}\\n"; sleep {sleep};\''


def hog(megabytes: int, said: str, sleep: float = 0) -> str:
    """A command that takes memory, says so, and keeps it for a while."""
    return HOG.replace("{mb}", str(megabytes)).replace("{said}", said).replace("{sleep}", str(sleep))


MEMORY = [
    Hostile("heap", "memory", hog(400, "ESCAPED 400 MB", 1) + " || echo held", hog(100, "control ok")),
    Hostile(
        "string_that_doubles",
        "memory",
        "x=xxxxxxxxxxxxxxxx; while [ ${#x} -lt 500000000 ]; do x=$x$x; done; echo ESCAPED ${#x} bytes",
        "x=xxxxxxxxxxxxxxxx; while [ ${#x} -lt 1000000 ]; do x=$x$x; done; echo control ok",
        seconds=10.0,
    ),
    Hostile(
        "children_together",
        "memory",
        "for n in 1 2 3 4 5 6 7 8; do " + hog(60, "one", 4) + " & done; sleep 2.5; [ $(jobs -pr | wc -l) -ge 8 ] && echo ESCAPED 480 MB in 8 processes; echo held",
        "for n in 1 2; do " + hog(20, "one") + " & done; wait && echo control ok",
        seconds=8.0,
    ),
    Hostile(
        "memory_files",
        "memory",
        "perl -e 'my ($n, $name) = (`uname -m` =~ /aarch64/ ? 279 : 319, \"x\"); my $f = syscall($n, $name, 0); print $f >= 0 ? \"ESCAPED memfd $f\\n\" : \"held\\n\"'",
        PERL_CALL,
    ),
    kernel("shared_memory", (29, 194), "0, 1 << 20, 0x3b6", feature="memory"),
    kernel("message_queue", (68, 186), "0, 0x3b6", feature="memory"),
    kernel("semaphores", (64, 190), "0, 100, 0x3b6", feature="memory"),
    kernel("posix_queue", (240, 180), "$word, 0x42, 0x180, 0", feature="memory"),
    Hostile(
        "shared_mapping",
        "memory",
        """
perl -e '
my $mmap = `uname -m` =~ /aarch64/ ? 222 : 9;
my $kept = 0;
for (1 .. 40) {
    my $at = syscall($mmap, 0, 10 << 20, 3, 0x21 | 0x8000, -1, 0);
    last if $at < 0 && $at > -4096;
    $kept += 10;
}
select(undef, undef, undef, 0.5);
print $kept > 330 ? "ESCAPED $kept MB shared\\n" : "held\\n";
'
""",
        PERL_CALL,
    ),
    Hostile(
        "pipes",
        "memory",
        """
perl -e '
my ($held, @all) = (0);
for (1 .. 120) {
    pipe(my $r, my $w) or last;
    my $size = fcntl($w, 1031, 1 << 20) || 65536;
    $held += $size; push @all, $r, $w;
}
printf "%s\\n", $held > 320 << 20 ? "ESCAPED pipes of $held bytes" : "held";
'
""",
        "echo through | cat > own && [ \"$(cat own)\" = through ] && echo control ok",
    ),
    Hostile(
        "socket_buffers",
        "memory",
        """
for n in $(seq 1 16); do
perl -MSocket -e '
my ($held, @all) = (0);
for (1 .. 110) {
    socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or last;
    for my $s ($a, $b) {
        setsockopt($s, SOL_SOCKET, SO_SNDBUF, 1 << 20); fcntl($s, 4, 2048);
        while (my $n = syswrite($s, "x" x 65536)) { $held += $n }
    }
    push @all, $a, $b;
    open(my $f, ">", "held_$$"); print $f $held; close $f;
}
sleep 4;
' &
done
sleep 3
sum=0; for f in held_*; do [ -s $f ] && sum=$((sum + $(cat $f))); done
[ $sum -gt $((320 << 20)) ] && echo ESCAPED $sum bytes in sockets
echo held
""",
        "perl -e 'my $p = fork; exit 0 unless $p; waitpid($p, 0); print \"control ok\\n\"'",
        seconds=8.0,
        alone=True,
    ),
    Hostile(
        "attributes_in_memory",
        "memory",
        """
perl -e '
my $number = `uname -m` =~ /aarch64/ ? 5 : 188;
my ($held, $value) = (0, "x" x 60000);
FILE: for my $f (1 .. 3000) {
    open(my $o, ">", "f$f") or last; close $o;
    for my $n (1 .. 2) { my ($path, $name) = ("f$f", "user.n$n"); last FILE if syscall($number, $path, $name, $value, 60000, 0) < 0; $held += 60000; }
}
print $held > 100 << 20 ? "ESCAPED $held bytes of attributes\\n" : "held\\n";
'
""",
        "perl -e 'open(my $o, \">\", \"f\") and print \"control ok\\n\"'",
    ),
    Hostile(
        "deep_recursion",
        "memory",
        "f() { f; }; f; echo held",
        "f() { [ $1 -gt 0 ] && f $(($1 - 1)); }; f 50; echo control ok",
        seconds=3.0,
    ),
    Hostile(
        "locked_memory",
        "memory",
        "perl -e 'my ($all, $x) = (`uname -m` =~ /aarch64/ ? 230 : 151, \"x\" x (64 << 20)); print syscall($all, 3) >= 0 ? \"ESCAPED locked 64 MB\\n\" : \"held\\n\"'",
        PERL_CALL,
    ),
]  # fmt: skip

CPU = [
    Hostile(
        "more_processors",
        "cpu",
        "taskset -c 0-1023 true 2> /dev/null && [ $(taskset -c 0-1023 nproc) -gt 1 ] && echo ESCAPED affinity; [ $(nproc) -gt 1 ] && echo ESCAPED $(nproc) processors; echo held",
        "[ $(nproc) -ge 1 ] && taskset --version > /dev/null && echo control ok",
    ),
    Hostile(
        "burn_with_many",
        "cpu",
        """
begun=$(date +%s%N)
for n in 1 2 3 4 5 6; do timeout 1 perl -e 'while (1) {}' & done; wait
wall=$(( ($(date +%s%N) - begun) / 1000000 ))
times > spent
spent=$(tail -1 spent | perl -ne 'my $s = 0; $s += 60 * $1 + $2 while /([0-9]+)m([0-9.]+)s/g; printf "%d", 1000 * $s')
[ $spent -gt $((wall * 3 / 2)) ] && echo ESCAPED $spent ms of processor in $wall ms
echo held
""",
        "timeout 1 perl -e 'exit 0' && times > spent && [ $(tail -1 spent | wc -w) = 2 ] && echo control ok",
    ),
    Hostile(
        "priority",
        "cpu",
        "[ \"$(nice -n -5 nice 2> /dev/null)\" -lt 0 ] 2> /dev/null && echo ESCAPED nice; renice -n 1 -p {host_pid} 2> /dev/null && echo ESCAPED reniced the host;"
        " renice -n 1 -p 1 > /dev/null 2>&1 && [ \"$(cat /proc/1/comm 2> /dev/null)\" = systemd ] && echo ESCAPED; echo held",
        "nice -n 1 true && echo control ok",
    ),
    Hostile(
        "real_time",
        "cpu",
        "for how in '-f 1' '-r 1' '-d --sched-runtime 1000000 --sched-deadline 2000000 --sched-period 2000000 0'; do chrt $how true 2> /dev/null && echo ESCAPED $how; done; echo held",
        "chrt --version > /dev/null && echo control ok",
    ),
    Hostile(
        "disk_priority",
        "cpu",
        "ionice -c 1 -n 0 true 2> /dev/null && echo ESCAPED real time; ionice -c 3 -p {host_pid} 2> /dev/null && echo ESCAPED of the host; echo held",
        "ionice --version > /dev/null && echo control ok",
    ),
]  # fmt: skip

TIME = [
    Hostile("endless_loop", "time", "while :; do :; done", "for n in 1 2 3; do :; done; echo control ok", seconds=1.0),
    Hostile("long_sleep", "time", "sleep 600", "sleep 0.05; echo control ok", seconds=1.0),
    Hostile("deaf_to_signals", "time", "trap '' TERM INT HUP QUIT ALRM XCPU USR1 PIPE; while :; do sleep 1; done", "trap '' TERM; echo control ok", seconds=1.0),
    Hostile("stops_itself", "time", "kill -STOP $$; echo ESCAPED went on", "kill -CONT $$; echo control ok", seconds=1.0),
    Hostile("silent_and_closed", "time", "exec 0<&- 1>&- 2>&-; while :; do sleep 1; done", "exec 3>&1; exec 3>&-; echo control ok", seconds=1.0),
    Hostile("children_that_restart", "time", "r() { trap '' TERM; while :; do bash -c 'sleep 100'; done; }; r & r & wait", MAKE_CHILD, seconds=1.0),
    Hostile("timers_cleared", "time", "perl -e 'alarm 0; $SIG{ALRM} = \"IGNORE\"; my $n = `uname -m` =~ /aarch64/ ? 103 : 38; my $none = \"\\0\" x 32; syscall($n, 0, $none, 0); while (1) {}'", PERL_CALL, seconds=1.0),
    Hostile("more_processor_time", "time", "ulimit -t unlimited; ulimit -St unlimited; while :; do :; done", "ulimit -t > /dev/null && echo control ok", seconds=1.0),
]  # fmt: skip

WROTE = "; s=$(du -sm . 2> /dev/null | cut -f1); [ ${s:-0} -gt 80 ] && echo ESCAPED $s MB; echo held"

DISK = [
    Hostile("big_file", "disk", "head -c 200M /dev/zero > big" + WROTE, "head -c 20M /dev/zero > big && echo control ok"),
    Hostile("big_file_in_workspace", "disk", "head -c 200M /dev/zero > big" + WROTE, "head -c 20M /dev/zero > big && echo control ok", workspace=True),
    Hostile("many_big_files", "disk", "for n in 1 2 3 4 5 6; do head -c 40M /dev/zero > big$n; done; sleep 0.5" + WROTE, "head -c 20M /dev/zero > big && echo control ok"),
    Hostile("many_big_files_in_workspace", "disk", "for n in 1 2 3 4 5 6 7 8; do head -c 40M /dev/zero > big$n; sleep 0.1; done; sleep 1" + WROTE, "head -c 20M /dev/zero > big && echo control ok", workspace=True),
    Hostile("many_files", "disk", "perl -e 'for (1 .. 40000) { open(my $f, \">\", \"f$_\") or last; $n = $_ } select(undef, undef, undef, 0.5); print $n > 20000 ? \"ESCAPED $n files\\n\" : \"held\\n\"'", "for n in $(seq 1 200); do : > f$n; done && echo control ok", seconds=10.0),
    Hostile("many_files_in_workspace", "disk", "perl -e 'for (1 .. 60000) { open(my $f, \">\", \"f$_\") or last; $n = $_; select(undef, undef, undef, 0.05) unless $n % 2000 } select(undef, undef, undef, 0.5); print $n >= 60000 ? \"ESCAPED $n files\\n\" : \"held\\n\"'", "for n in $(seq 1 200); do : > f$n; done && echo control ok", seconds=10.0, workspace=True),
    Hostile("file_with_holes", "disk", "truncate -s 100G holes && echo ESCAPED 100 GB to the eye; fallocate -l 1G full && echo ESCAPED fallocate; echo held", "truncate -s 1M holes && echo control ok"),
    Hostile("removed_but_open", "disk", "exec 3> f 4> g 5> h 6> i; rm f g h i; for n in 3 4 5 6; do head -c 50M /dev/zero >&$n && w=$((w + 50)); done; sleep 0.5; [ ${w:-0} -ge 200 ] && echo ESCAPED $w MB; echo held", "exec 3> f; rm f; head -c 1M /dev/zero >&3 && echo control ok"),
    Hostile("removed_but_open_in_workspace", "disk", "exec 3> f 4> g 5> h 6> i 7> j 8> k; rm f g h i j k; for n in 3 4 5 6 7 8; do head -c 50M /dev/zero >&$n && w=$((w + 50)); sleep 0.1; done; sleep 1; [ ${w:-0} -ge 300 ] && echo ESCAPED $w MB; echo held", "exec 3> f; rm f; head -c 1M /dev/zero >&3 && echo control ok", workspace=True),
    Hostile("elsewhere", "disk", "w=0; for d in /dev/shm /tmp /var/tmp /run /run/lock /run/user /dev /dev/mqueue / /mnt /home $HOME $TMPDIR; do head -c 100M /dev/zero > $d/big_$$ 2> /dev/null; s=$(stat -c %s $d/big_$$ 2> /dev/null); w=$((w + ${s:-0})); done; sleep 0.3; [ $w -gt 180000000 ] && echo ESCAPED $w bytes; echo held", "echo x > $TMPDIR/own && echo control ok", seconds=8.0),
    Hostile("deep_folders", "disk", "perl -e 'for (1 .. 3000) { mkdir \"d\" or last; chdir \"d\" or last } print \"held\\n\"'", "mkdir -p a/b/c/d && echo control ok", seconds=10.0),
    Hostile("locked_folders", "disk", "mkdir -p a/b && echo x > a/b/c && chmod 000 a/b/c a/b a; echo held", "mkdir -p a/b && echo control ok"),
    Hostile("odd_names", "disk", "for n in $'a\\nb' $'\\xff\\xfe' ./-rf '*' ' '; do : > \"$n\"; done; mkdir $'\\xff' && ln -s / root && ln -s {outside} away && ln -s . loop; echo held", ": > a && echo control ok"),
]  # fmt: skip

OUTPUT = [
    Hostile("flood_of_lines", "output", "yes", "yes | head -n 1000 | wc -l | grep -q 1000 && echo control ok"),
    Hostile("flood_of_errors", "output", "yes >&2", "echo x >&2; echo control ok"),
    Hostile("flood_of_both", "output", "yes & yes >&2", "echo x >&2; echo control ok"),
    Hostile("endless_line", "output", "tr '\\0' a < /dev/zero", "head -c 10000 /dev/zero | tr '\\0' a | wc -c | grep -q 10000 && echo control ok"),
    Hostile("one_big_write", "output", "head -c 300M /dev/zero", "head -c 1000 /dev/zero | wc -c | grep -q 1000 && echo control ok"),
    Hostile("bytes_that_are_no_text", "output", "head -c 4M /dev/urandom", "head -c 100 /dev/urandom > own && echo control ok"),
    Hostile("frames", "output", "printf '\\036{\"result\": \"forged\"}\\n\\036{\"call\": 1, \"op\": \"fs.readFile\", \"args\": [\"{secret_file}\"]}\\n'; read -t 1 answer; [ -n \"$answer\" ] && echo ESCAPED served $answer; echo held", "printf '\\036{}\\n'; echo control ok"),
]  # fmt: skip

SIGNALS = [
    Hostile("to_the_host", "signals", "kill -0 {host_pid} 2> /dev/null && echo ESCAPED may signal the host; kill -URG {host_pid} 2> /dev/null && echo ESCAPED signalled; echo held", "kill -0 $$ && echo control ok"),
    Hostile("to_everybody", "signals", "kill -URG -1; kill -WINCH -1; echo held", "kill -URG $$; echo control ok"),
    Hostile("to_the_group", "signals", "kill -URG 0; kill -WINCH 0; echo held", "kill -URG $$; echo control ok"),
    Hostile("to_the_parent", "signals", "for p in 1 $PPID; do kill -URG $p 2> /dev/null; done; for n in $(seq {host_pid} $(({host_pid} + 40))); do [ $n != $$ ] && kill -URG $n 2> /dev/null; done; echo held", "kill -URG $$; echo control ok"),
    Hostile("to_the_host_by_descriptor", "signals", "perl -e 'my $n = 424; opendir(my $d, \"/proc/{host_pid}\"); print defined $d && syscall($n, fileno($d), 0, 0, 0) >= 0 ? \"ESCAPED signalled\\n\" : \"held\\n\"' || echo held", "kill -0 $$ && echo control ok"),
    Hostile("to_the_host_as_a_thread", "signals", "perl -e 'my ($tkill, $tgkill, $queue) = `uname -m` =~ /aarch64/ ? (130, 131, 138) : (200, 234, 129); print \"ESCAPED tkill\\n\" if syscall($tkill, {host_pid}, 23) >= 0; print \"ESCAPED tgkill\\n\" if syscall($tgkill, {host_pid}, {host_pid}, 23) >= 0; my $told = pack(\"i3\", 23, 0, -1) . \"\\0\" x 116; print \"ESCAPED queued\\n\" if syscall($queue, {host_pid}, 23, $told) >= 0; print \"held\\n\"'", "kill -0 $$ && echo control ok"),
    Hostile("owner_of_a_pipe", "signals", "perl -e 'print \"ESCAPED owner\\n\" if fcntl(STDIN, 8, {host_pid}) && fcntl(STDIN, 4, 8192) && fcntl(STDIN, 10, 23); print \"held\\n\"'", "kill -0 $$ && echo control ok"),
    Hostile("of_the_input", "signals", "kill -IO {host_pid} 2> /dev/null && echo ESCAPED; perl -e 'my $p = getppid(); kill 23, -$p; kill 23, -{host_pid}'; echo held", "kill -0 $$ && echo control ok"),
]  # fmt: skip

PROGRAMS: list[Hostile] = [*FILES, *ENVIRONMENT, *NETWORK, *PROCESSES, *MEMORY, *CPU, *TIME, *DISK, *OUTPUT, *SIGNALS]
