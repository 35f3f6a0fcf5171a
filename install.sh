#!/bin/sh
# Installs gus. Run it again to upgrade. `sh install.sh --help` says the rest.
#
# What changes the tree of files goes through step, what changes the machine
# (accounts, services, the kernel) through host: so --dry-run and --root hold for
# all of it.
set -eu
umask 022

usage() {
	cat <<'TEXT'
usage: sh install.sh [--join TOKEN --name NAME [--observer]] [--binary FILE] [--dry-run]
       sh install.sh --uninstall [--purge] [--dry-run]

Builds gus from this folder, with Go 1.26 or newer, and installs it. Run again, it
upgrades: the binary is replaced, and an agent that runs is restarted.

As root it installs /usr/local/bin/gus, completions for bash, zsh and fish in
/usr/local/share, the user and group gus, /var/lib/gus for its data, gus.service
for systemd, and larger UDP buffers for the kernel. Otherwise, or with --prefix,
the binary and the completions are all it installs.

  --join TOKEN   join a cluster (gus token prints one at any of its sites) and
                 start the agent, now and at each boot; wants --name
  --name NAME    this site's name in the cluster
  --observer     join without a vote, under a name that is not a voter's
  --binary FILE  install this gus and build none
  --prefix DIR   install DIR/bin/gus, and the completions in DIR/share, alone
                 (default, unless root: ~/.local)
  --no-sysctl    leave the kernel's UDP buffers as they are
  --uninstall    remove gus; its data and user stay
  --purge        with --uninstall: remove them too, the site's identity with them
  --root DIR     install as root does, into the tree DIR: an image that is made,
                 or a test. Accounts and services are only spoken of
  --dry-run      say what would be done, and do nothing
  --help         this text
TEXT
}

fail() { # MESSAGE [EXIT CODE]
	printf 'install.sh: %s\n' "$1" >&2
	exit "${2:-1}"
}

wrong() { # MESSAGE
	fail "$1: see sh install.sh --help" 2
}

say() { # PHRASE
	if [ -n "$dry" ]; then printf 'would %s\n' "$1"; else printf '%s\n' "$1"; fi
}

step() { # PHRASE COMMAND...
	say "$1"
	phrase=$1
	shift
	[ -n "$dry" ] || "$@" || fail "could not $phrase"
}

host() { # COMMAND...
	if [ -n "$dry$root" ]; then
		printf 'would run %s\n' "$*"
	else
		printf 'run %s\n' "$*"
		"$@" || fail "this failed: $*"
	fi
}

absolute() { # PATH
	case $1 in
	/*) printf '%s' "$1" ;;
	*) printf '%s/%s' "$PWD" "$1" ;;
	esac
}

parse() { # ARGUMENT...
	while [ $# -gt 0 ]; do
		option=$1
		case $option in
		--join | --name | --binary | --prefix | --root)
			[ $# -ge 2 ] || wrong "$option wants a value"
			value=$2
			shift
			;;
		--join=* | --name=* | --binary=* | --prefix=* | --root=*)
			value=${option#*=}
			option=${option%%=*}
			;;
		*) value=none ;;
		esac
		shift
		# Where a variable was to stand that is not set, half of what was meant
		# would be done.
		case $value in
		'' | -*) wrong "$option wants a value, not '$value'" ;;
		esac
		case $option in
		--join) token=$value ;;
		--name) name=$value ;;
		--binary) binary=$(absolute "$value") ;;
		--prefix) prefix=$(absolute "$value") ;;
		--root)
			root=$(absolute "$value")
			root=${root%/}
			;;
		--observer) observer=--observer ;;
		--no-sysctl) sysctl= ;;
		--uninstall) uninstall=1 ;;
		--purge) purge=1 ;;
		--dry-run) dry=1 ;;
		-h | --help)
			usage
			exit 0
			;;
		*) wrong "unknown argument '$option'" ;;
		esac
	done
}

# consistent refuses arguments that do not go together, before anything is done.
consistent() {
	[ -z "$token" ] || [ -n "$name" ] || wrong "--join wants --name, this site's name"
	[ -z "$name" ] || [ -n "$token" ] || wrong "--name goes with --join"
	[ -z "$observer" ] || [ -n "$token" ] || wrong "--observer goes with --join"
	[ -z "$purge" ] || [ -n "$uninstall" ] || wrong "--purge goes with --uninstall"
	[ -z "$uninstall" ] || [ -z "$token$binary" ] || wrong "--uninstall does not go with --join or --binary"
	[ -z "$prefix" ] || [ -z "$token$purge$root" ] ||
		wrong "--prefix installs no service and does not go with --join, --purge or --root"
	[ -n "$whole" ] || [ -z "$token$purge" ] || fail "--join and --purge are about a service of the system: run this as root"
	[ -z "$binary" ] || [ -f "$binary" ] || fail "there is no file $binary to install"
}

# obtain puts the new binary beside its place, to be renamed into it: an agent
# that runs keeps its file, and a build that fails changes nothing.
obtain() {
	new=$root$bin.new.$$
	trap 'rm -f "$new"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	if [ -n "$binary" ]; then
		step "copy $binary" copy
	else
		if [ ! -f "$source/go.mod" ] || [ ! -f "$source/main.go" ]; then
			fail "there is no source of gus beside this script: run it from its own folder, or name a binary by --binary"
		fi
		PATH=$PATH:/usr/local/go/bin # sudo leaves it out
		command -v go >/dev/null 2>&1 || fail "no Go found: install Go 1.26 or newer, see https://go.dev/dl, or name a binary by --binary"
		step "build gus with $(go version | cut -d' ' -f3)" build
	fi
	[ -z "$dry" ] || return 0
	version=$("$new" version </dev/null 2>/dev/null) || version=
	case $version in
	'gus '*) ;;
	*) fail "${binary:-what was built} is no gus that runs on this machine" ;;
	esac
}

copy() {
	mkdir -p "${new%/*}" && cp "$binary" "$new" && chmod 0755 "$new"
}

build() {
	mkdir -p "${new%/*}" || return
	# A checkout that git does not trust, since it is another user's, has no
	# version; that is no reason not to build it.
	vcs=auto
	git -C "$source" rev-parse HEAD >/dev/null 2>&1 || vcs=false
	(cd "$source" && HOME=${HOME:-/root} CGO_ENABLED=0 go build -buildvcs="$vcs" -trimpath -ldflags '-s -w' -o "$new" .)
}

# write replaces a file with what it reads, at once and not in parts.
write() { # FILE
	mkdir -p "${1%/*}" && cat >"$1.new" && chmod 0644 "$1.new" && mv -f "$1.new" "$1"
}

write_completion() { # SHELL FILE
	text=$("$root$bin" completion "$1" </dev/null) && printf '%s\n' "$text" | write "$root$2"
}

write_completions() {
	step "write $share/$bash_completion" write_completion bash "$share/$bash_completion"
	step "write $share/$zsh_completion" write_completion zsh "$share/$zsh_completion"
	step "write $share/$fish_completion" write_completion fish "$share/$fish_completion"
}

account() {
	if [ -n "$root" ] || ! getent group gus >/dev/null; then
		host groupadd --system gus
	fi
	if [ -n "$root" ] || ! getent passwd gus >/dev/null; then
		host useradd --system --gid gus --no-create-home --home-dir /nonexistent \
			--shell "$(command -v nologin || echo /bin/false)" --comment 'gus agent' gus
	fi
}

make_data() {
	mkdir -p "$root${data%/*}" && { [ -d "$root$data" ] || mkdir -m 0700 "$root$data"; } && chmod 0700 "$root$data"
}

unit_text() {
	cat <<TEXT
# Written by install.sh of gus, and anew by each upgrade. Settings of your own go
# into a drop-in: systemctl edit gus, and there for instance
#   [Service]
#   Environment=GUS_LISTEN=192.0.2.1:7487
[Unit]
Description=gus agent: small values, the same at all sites
# Not network-online.target: a site that is cut off serves what it has.
After=network.target
RequiresMountsFor=$data
# It starts no agent, and is no failure, where no site has joined yet.
ConditionPathExists=$data/identity/site.pem
ConditionPathExists=$data/identity/site.key
# Nobody is near to start it again: it is tried for ever.
StartLimitIntervalSec=0

[Service]
Type=notify
User=gus
Group=gus
Environment=GUS_DATA=$data
Environment=GUS_SOCKET=$socket
ExecStart=$bin agent
# The agent opens its socket to its own user; here the group may use it as well.
ExecStartPost=/bin/chmod 0660 \${GUS_SOCKET}
ExecReload=/bin/kill -HUP \$MAINPID
Restart=on-failure
RestartSec=5s
# Wrong usage stays wrong, and a directory that is older than what this site has told
# the others stays so.
RestartPreventExitStatus=2 6
# Reading a large database from a slow card takes its time.
TimeoutStartSec=10min
TimeoutStopSec=30s
RuntimeDirectory=gus
RuntimeDirectoryMode=0750
ConfigurationDirectory=gus
UMask=0077
LimitNOFILE=65536

# It needs its data, its socket and the network, and gets nothing else.
ReadWritePaths=$data
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
TEXT
}

write_unit() {
	unit_text | write "$root$unit"
}

# at_least prints a setting of the kernel's, of at least this many bytes: what
# somebody has made larger stays so.
at_least() { # KEY BYTES
	now=$(cat "$root/proc/sys/net/core/$1" 2>/dev/null) || now=0
	[ "$now" -ge "$2" ] || now=$2
	printf 'net.core.%s = %s\n' "$1" "$now"
}

buffers_text() {
	printf '# Written by install.sh of gus: QUIC wants 7 MB for what arrives and what leaves.\n'
	at_least rmem_max 7500000
	at_least wmem_max 7500000
}

write_buffers() {
	buffers_text | write "$root$buffers"
}

# apply_buffers may fail: in a container the kernel belongs to others.
apply_buffers() {
	if ! command -v sysctl >/dev/null 2>&1 || ! sysctl -q -p "$buffers" >/dev/null 2>&1; then
		printf 'note: the UDP buffers cannot be set from here; gus works without, and slower under load\n'
	fi
}

# systemctl where systemd runs; an image that is made, and most containers, have
# none that does.
service() { # ARGUMENT...
	if [ -n "$root" ] || [ -d /run/systemd/system ]; then
		host systemctl "$@"
	fi
}

has_identity() {
	[ -f "$root$data/identity/site.pem" ] && [ -f "$root$data/identity/site.key" ]
}

# join becomes a site, once: the same command again, with a token long used, is
# an upgrade.
join() {
	if has_identity; then
		printf 'note: %s holds an identity: this site does not join again\n' "$data"
		return
	fi
	# The token is a secret and is not printed.
	if [ -n "$dry$root" ]; then
		printf 'would run, as gus, %s join TOKEN --name %s%s --data %s\n' "$bin" "$name" "${observer:+ $observer}" "$data"
		return
	fi
	printf 'run, as gus, %s join TOKEN --name %s%s --data %s\n' "$bin" "$name" "${observer:+ $observer}" "$data"
	# shellcheck disable=SC2016 # it is the shell of gus that is to expand it
	su -s /bin/sh -c 'cd / && exec "$@"' -- gus sh "$bin" join "$token" --name "$name" ${observer:+"$observer"} --data "$data" ||
		fail "gus is installed and has not joined: once what is said above is mended, run this again"
}

advise() {
	printf 'installed %s\n' "$version"
	start='systemctl enable --now gus'
	if [ ! -d /run/systemd/system ]; then
		start="su -s /bin/sh gus -c '$bin agent --data $data'"
		printf 'note: systemd does not run here, so nothing starts the agent by itself\n'
	fi
	if ! has_identity; then
		cat <<TEXT
This site is in no cluster yet. Either join one:
  sh install.sh --join TOKEN --name NAME
or found one, and start the agent:
  su -s /bin/sh gus -c '$bin init --name NAME --voters NAME,... --data $data'
  $start
TEXT
	elif [ ! -d /run/systemd/system ]; then
		printf '  %s\n' "$start"
	else
		printf 'to use it, as root or in the group gus: export GUS_SOCKET=%s\n' "$socket"
	fi
}

remove() { # PATH...
	for path; do
		if [ -e "$root$path" ] || [ -h "$root$path" ]; then
			step "remove $path" rm -rf "$root$path"
		fi
	done
}

remove_binary() {
	remove "$bin" "$share/$bash_completion" "$share/$zsh_completion" "$share/$fish_completion"
}

uninstall_all() {
	# Of a link only the link would go, and what it leads to would stay unsaid.
	if [ -n "$purge" ] && [ -h "$root$data" ]; then
		fail "$data is a link: remove what it leads to, and then the link, and leave out --purge"
	fi
	if [ -e "$root$unit" ]; then
		service disable --now gus.service
		remove "$unit"
		service daemon-reload
	fi
	remove "$buffers"
	remove_binary
	if [ -z "$purge" ]; then
		[ ! -d "$root$data" ] || printf 'kept %s, which holds what gus has stored and who this site is, and the user gus\n' "$data"
		return
	fi
	remove "$unit.d" "$data"
	if [ -n "$root" ] || getent passwd gus >/dev/null; then
		host userdel gus
	fi
	if [ -n "$root" ] || getent group gus >/dev/null; then
		host groupdel gus
	fi
}

install_all() {
	obtain
	account
	step "make $data, for gus alone" make_data
	host chown -hR gus:gus "$data/" # the slash: it may be a link to a larger disk
	step "install $bin" mv -f "$new" "$root$bin"
	write_completions
	if [ -n "$sysctl" ]; then
		step "write $buffers" write_buffers
		[ -n "$dry$root" ] || apply_buffers
	fi
	if [ -n "$root" ] || command -v systemctl >/dev/null 2>&1; then
		step "write $unit" write_unit
		service daemon-reload
	fi
	if [ -n "$token" ]; then
		join
		service enable gus.service
		service restart gus.service
	else
		service try-restart gus.service
	fi
	[ -n "$dry$root" ] || advise
}

install_binary() {
	obtain
	step "install $bin" mv -f "$new" "$bin"
	write_completions
	[ -z "$dry" ] || return 0
	printf 'installed %s\n' "$version"
	case :$PATH: in
	*:"${bin%/*}":*) ;;
	*) printf 'note: %s is not in your PATH\n' "${bin%/*}" ;;
	esac
}

token='' name='' observer='' binary='' prefix='' root='' sysctl=1 uninstall='' purge='' dry=''
parse "$@"

# whole: all of it is installed, and not the binary alone.
whole=
if [ -n "$root" ] || { [ -z "$prefix" ] && [ "$(id -u)" -eq 0 ]; }; then
	whole=1
	bin=/usr/local/bin/gus
	share=/usr/local/share
else
	bin=${prefix:-${HOME:?}/.local}/bin/gus
	share=${bin%/bin/gus}/share
fi
bash_completion=bash-completion/completions/gus
zsh_completion=zsh/site-functions/_gus
fish_completion=fish/vendor_completions.d/gus.fish
source=$(cd "$(dirname "$0")" && pwd)
data=/var/lib/gus
socket=/run/gus/gus.sock
unit=/etc/systemd/system/gus.service
buffers=/etc/sysctl.d/60-gus.conf

consistent
if [ -n "$uninstall" ]; then
	[ -e "$root$bin" ] || printf 'note: there is no %s\n' "$bin"
	if [ -n "$whole" ]; then uninstall_all; else remove_binary; fi
else
	if [ -n "$whole" ]; then install_all; else install_binary; fi
fi
