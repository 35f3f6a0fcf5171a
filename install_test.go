package main

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gus/cli"
)

// asGus makes the test binary be gus itself: something true to install, and
// nothing to build.
const asGus = "GUS_TEST_AS_GUS"

func TestMain(m *testing.M) {
	if os.Getenv(asGus) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// The files that an installation consists of, in its tree.
const (
	installedBinary  = "usr/local/bin/gus"
	installedUnit    = "etc/systemd/system/gus.service"
	installedBuffers = "etc/sysctl.d/60-gus.conf"
	installedData    = "var/lib/gus"
)

// installedCompletions are those below the directory share, with a word of each.
var installedCompletions = map[string]string{
	"bash-completion/completions/gus":    "complete ",
	"zsh/site-functions/_gus":            "#compdef gus",
	"fish/vendor_completions.d/gus.fish": "complete -c gus",
}

// installer runs install.sh into a tree of its own.
type installer struct {
	t      *testing.T
	root   string
	script string
	env    []string
}

func newInstaller(t *testing.T) *installer {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("install.sh is for systems with a shell")
	}
	script, err := filepath.Abs("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	return &installer{t: t, root: t.TempDir(), script: script, env: []string{asGus + "=1"}}
}

// run runs the script and returns what it printed and its exit code.
func (in *installer) run(args ...string) (stdout, stderr string, code int) {
	in.t.Helper()
	cmd := exec.Command("sh", append([]string{in.script}, args...)...)
	cmd.Env = append(os.Environ(), in.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		in.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs the script in the tree, where it must succeed, and returns what it printed.
func (in *installer) must(args ...string) string {
	in.t.Helper()
	out, errs, code := in.run(append([]string{"--root", in.root}, args...)...)
	if code != 0 || errs != "" {
		in.t.Fatalf("install.sh %s: exit code %d\n%s%s", args, code, out, errs)
	}
	return out
}

// gus is the binary to install.
func gus(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// tree lists the files of the tree, with their modes and contents.
func (in *installer) tree() map[string]string {
	in.t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(in.root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if d.Type().IsRegular() {
			b, err := os.ReadFile(filepath.Join(in.root, name))
			if err != nil {
				return err
			}
			text += " " + string(b)
		}
		files[name] = text
		return nil
	})
	if err != nil {
		in.t.Fatal(err)
	}
	return files
}

func (in *installer) put(name, text string, mode fs.FileMode) string {
	in.t.Helper()
	path := filepath.Join(in.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		in.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		in.t.Fatal(err)
	}
	return path
}

func (in *installer) there(name string) bool {
	in.t.Helper()
	_, err := os.Lstat(filepath.Join(in.root, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		in.t.Fatal(err)
	}
	return err == nil
}

// wantLines checks that each of the lines is in the text, in this order.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	rest := text
	for _, want := range lines {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("there is no %q, or not where it belongs, in:\n%s", want, text)
		}
		rest = after
	}
}

func TestInstallIsAllThatASiteNeeds(t *testing.T) {
	in := newInstaller(t)
	out := in.must("--binary", gus(t))
	wantLines(t, out, "would run groupadd --system gus", "would run useradd --system --gid gus", "would run chown -hR gus:gus /var/lib/gus",
		"would run systemctl daemon-reload", "would run systemctl try-restart gus.service")
	for name, want := range map[string]string{
		installedBinary: "-rwxr-xr-x", installedUnit: "-rw-r--r--", installedBuffers: "-rw-r--r--",
		installedData: "drwx------", "var/lib": "drwxr-xr-x", "usr/local/share": "drwxr-xr-x",
	} {
		if got, ok := in.tree()[name]; !ok || !strings.HasPrefix(got, want) {
			t.Errorf("%s: there: %v, mode %.10s, want %s", name, ok, got, want)
		}
	}
	cmd := exec.Command(filepath.Join(in.root, installedBinary), "version")
	cmd.Env = append(os.Environ(), asGus+"=1")
	if got, err := cmd.Output(); err != nil || !strings.HasPrefix(string(got), "gus ") {
		t.Errorf("what is installed says %q, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(in.root, "usr/local/bin/*")); len(left) != 1 {
		t.Errorf("it left %s", left)
	}
	for name, word := range installedCompletions {
		if got := in.tree()["usr/local/share/"+name]; !strings.HasPrefix(got, "-rw-r--r-- ") || !strings.Contains(got, word) {
			t.Errorf("%s: %.100q has no %q", name, got, word)
		}
	}
}

func TestUnitStartsOnlyWhereAnIdentityIs(t *testing.T) {
	in := newInstaller(t)
	in.must("--binary", gus(t))
	unit := in.tree()[installedUnit]
	wantLines(t, unit, "\nConditionPathExists=/var/lib/gus/identity/site.pem", "\nConditionPathExists=/var/lib/gus/identity/site.key",
		"\nType=notify", "\nUser=gus", "\nEnvironment=GUS_SOCKET=/run/gus/gus.sock", "\nExecStart=/usr/local/bin/gus agent",
		"\nExecStartPost=/bin/chmod 0660 ${GUS_SOCKET}", "\nExecReload=/bin/kill -HUP $MAINPID", "\nRestart=on-failure", "\nRestartPreventExitStatus=2 6", "\nRuntimeDirectory=gus", "\nConfigurationDirectory=gus",
		"\nReadWritePaths=/var/lib/gus", "\nProtectSystem=strict", "\nNoNewPrivileges=yes")
}

func TestSystemdUnderstandsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	in := newInstaller(t)
	in.must("--binary", gus(t))
	// It looks for the binary too, and knows of no other root.
	unit := strings.TrimPrefix(in.tree()[installedUnit], "-rw-r--r-- ")
	unit = strings.Replace(unit, "=/usr/local/bin/gus ", "="+filepath.Join(in.root, installedBinary)+" ", 1)
	verify := func(unit string) string {
		out, err := exec.Command(analyze, "verify", "--man=no", in.put("verify/gus.service", unit, 0o644)).CombinedOutput()
		// An exit code may be about other units of this machine.
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out)
	}
	if out := verify(unit); strings.Contains(out, "gus.service") {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	if out := verify(strings.Replace(unit, "Type=notify", "Type=notfy", 1)); !strings.Contains(out, "gus.service") {
		t.Errorf("systemd-analyze verify finds no fault in Type=notfy: %s", out)
	}
}

func TestInstallAgainUpgrades(t *testing.T) {
	in := newInstaller(t)
	in.must("--binary", in.put("old", "#!/bin/sh\necho gus v1\n", 0o644))
	in.put(installedData+"/gus.db", "data", 0o600)
	in.put(installedUnit, "a unit of before", 0o644)
	before, err := os.Open(filepath.Join(in.root, installedBinary)) // as a process that runs has it
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()

	out := in.must("--binary", in.put("new", "#!/bin/sh\necho gus v2\n", 0o644))
	wantLines(t, out, "install /usr/local/bin/gus", "write /etc/systemd/system/gus.service", "systemctl daemon-reload", "systemctl try-restart gus.service")
	after := in.tree()
	if !strings.Contains(after[installedBinary], "gus v2") || !strings.Contains(after[installedUnit], "ExecStart=") {
		t.Errorf("the binary is %q, the unit %q", after[installedBinary], after[installedUnit])
	}
	if !strings.HasSuffix(after[installedData+"/gus.db"], "data") {
		t.Error("the data is another")
	}
	was, err := before.Stat()
	is, err2 := os.Stat(filepath.Join(in.root, installedBinary))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if os.SameFile(was, is) {
		t.Error("the file of an agent that runs was written over")
	}
}

func TestJoinComesOnceAndTheStartAfterIt(t *testing.T) {
	in := newInstaller(t)
	join := []string{"--binary", gus(t), "--join=gus1-secret", "--name", "site-b"}
	const joins = "/usr/local/bin/gus join TOKEN --name site-b --data /var/lib/gus"
	out := in.must(join...)
	wantLines(t, out, "make /var/lib/gus", joins, "systemctl enable gus.service", "systemctl restart gus.service")
	if strings.Contains(out, "secret") {
		t.Errorf("it prints the token:\n%s", out)
	}
	in.put(installedData+"/identity/site.key", "", 0o600) // a key alone: an attempt that failed
	wantLines(t, in.must(join...), joins)
	in.put(installedData+"/identity/site.pem", "", 0o600)
	out = in.must(join...)
	wantLines(t, out, "does not join again", "systemctl restart gus.service")
	if strings.Contains(out, joins) {
		t.Errorf("it joins again:\n%s", out)
	}
}

func TestJoinAsAnObserver(t *testing.T) {
	in := newInstaller(t)
	out := in.must("--binary", gus(t), "--join", "gus1-secret", "--observer", "--name", "kiosk")
	wantLines(t, out, "gus join TOKEN --name kiosk --observer --data /var/lib/gus", "systemctl enable gus.service")
}

func TestDryRunChangesNothing(t *testing.T) {
	in := newInstaller(t)
	for _, args := range [][]string{
		{"--binary", gus(t), "--join", "gus1-x", "--name", "b"},
		{"--uninstall", "--purge"},
	} {
		before := in.tree()
		out := in.must(append(args, "--dry-run")...)
		if after := in.tree(); !maps.Equal(before, after) {
			t.Errorf("%s: it changed %v", args, slices.Sorted(maps.Keys(after)))
		}
		wantLines(t, out, "/usr/local/bin/gus", "/usr/local/share/bash-completion/completions/gus", "/usr/local/share/fish/vendor_completions.d/gus.fish")
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "would ") {
				t.Errorf("%s: it says %q, as if it did it", args, line)
			}
		}
		in.must("--binary", gus(t)) // for the next
	}
}

func TestUninstallKeepsWhatCannotBeHadAgain(t *testing.T) {
	in := newInstaller(t)
	in.must("--binary", gus(t))
	in.put(installedData+"/identity/site.key", "key", 0o600)
	dropIn := installedUnit + ".d/override.conf"
	in.put(dropIn, "[Service]\n", 0o644)

	out := in.must("--uninstall")
	wantLines(t, out, "systemctl disable --now gus.service", "remove /"+installedUnit, "systemctl daemon-reload", "remove /"+installedBinary, "kept /var/lib/gus")
	for name, want := range map[string]bool{
		installedBinary: false, installedUnit: false, installedBuffers: false,
		installedData + "/identity/site.key": true, dropIn: true,
	} {
		if in.there(name) != want {
			t.Errorf("after --uninstall %s is there: %v", name, !want)
		}
	}
	for name := range installedCompletions {
		if in.there("usr/local/share/" + name) {
			t.Errorf("after --uninstall %s is there", name)
		}
	}
	wantLines(t, in.must("--uninstall"), "note: there is no /usr/local/bin/gus", "kept /var/lib/gus")

	wantLines(t, in.must("--uninstall", "--purge"), "remove /var/lib/gus", "would run userdel gus")
	if in.there(installedData) || in.there(dropIn) {
		t.Error("after --purge something is still there")
	}
}

func TestPurgeDoesNotTakeALinkForTheData(t *testing.T) {
	in := newInstaller(t)
	in.put("disk/gus.db", "data", 0o600)
	if err := os.MkdirAll(filepath.Join(in.root, "var/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(in.root, "disk"), filepath.Join(in.root, installedData)); err != nil {
		t.Fatal(err)
	}
	_, errs, code := in.run("--root", in.root, "--uninstall", "--purge")
	if code != 1 || !strings.Contains(errs, "/var/lib/gus is a link") || !in.there("disk/gus.db") || !in.there(installedData) {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestBuffersAreOnlyMadeLarger(t *testing.T) {
	in := newInstaller(t)
	in.must("--binary", gus(t), "--no-sysctl")
	if in.there(installedBuffers) {
		t.Error("--no-sysctl writes", installedBuffers)
	}
	in.put("proc/sys/net/core/rmem_max", "212992\n", 0o644)
	in.put("proc/sys/net/core/wmem_max", "33554432\n", 0o644)
	in.must("--binary", gus(t))
	wantLines(t, in.tree()[installedBuffers], "\nnet.core.rmem_max = 7500000\n", "net.core.wmem_max = 33554432\n")
}

func TestWrongArgumentsOfInstallAreOneLine(t *testing.T) {
	in := newInstaller(t)
	notGus := in.put("not-gus", "#!/bin/sh\necho hello\n", 0o755)
	alone := in.put("elsewhere/install.sh", "", 0o644)
	text, err := os.ReadFile(in.script)
	if err != nil {
		t.Fatal(err)
	}
	in.put("elsewhere/install.sh", string(text), 0o644)
	for _, c := range []struct {
		name   string
		script string
		args   []string
		code   int
		says   string
	}{
		{"no such flag", in.script, []string{"--frobnicate"}, 2, "unknown argument '--frobnicate'"},
		{"a word", in.script, []string{"now"}, 2, "unknown argument 'now'"},
		{"no value", in.script, []string{"--binary"}, 2, "--binary wants a value"},
		{"an empty value", in.script, []string{"--join", "", "--name", "b"}, 2, "--join wants a value"},
		{"a flag for a value", in.script, []string{"--join", "--name", "b"}, 2, "--join wants a value, not '--name'"},
		{"no name", in.script, []string{"--join", "gus1-x"}, 2, "--join wants --name"},
		{"a name alone", in.script, []string{"--name", "b"}, 2, "--name goes with --join"},
		{"an observer of nothing", in.script, []string{"--observer"}, 2, "--observer goes with --join"},
		{"purge alone", in.script, []string{"--purge"}, 2, "--purge goes with --uninstall"},
		{"in and out", in.script, []string{"--uninstall", "--binary", notGus}, 2, "--uninstall does not go with"},
		{"prefix and join", in.script, []string{"--prefix", "/opt", "--join", "gus1-x", "--name", "b"}, 2, "--prefix installs no service"},
		{"no such binary", in.script, []string{"--binary", "/nowhere/gus"}, 1, "no file /nowhere/gus"},
		{"another binary", in.script, []string{"--binary", notGus}, 1, "not-gus is no gus that runs on this machine"},
		{"no source", alone, nil, 1, "no source of gus beside this script"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &installer{t: t, root: t.TempDir(), script: c.script, env: in.env}
			args := append([]string{"--root", in.root}, c.args...)
			_, errs, code := in.run(args...)
			if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "install.sh: ") {
				t.Errorf("exit code %d, want %d; it says %q, want %q", code, c.code, errs, c.says)
			}
			for name := range in.tree() {
				if strings.Contains(name, "gus") {
					t.Errorf("it left %s", name)
				}
			}
		})
	}
}

// TestBuildThatFailsChangesNothing builds by a go that is none: it copies what
// FAKE_GUS names, or fails where that is nothing.
func TestBuildThatFailsChangesNothing(t *testing.T) {
	in := newInstaller(t)
	path := filepath.Dir(in.put("path/go", `#!/bin/sh
if [ "$1" = version ]; then echo go version go1.26.0 test/test; exit; fi
[ "$CGO_ENABLED $1" = "0 build" ] || exit 9
while [ "$1" != -o ]; do shift; done
cp "$FAKE_GUS" "$2" && chmod 0755 "$2"
`, 0o755))
	prefix := filepath.Join(in.root, "opt")
	environment := append(in.env, "PATH="+path+":"+os.Getenv("PATH"))
	in.env = append(environment, "FAKE_GUS="+in.put("v1", "#!/bin/sh\necho gus v1\n", 0o644))
	out, errs, code := in.run("--prefix", prefix)
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d, %s%s", code, out, errs)
	}
	wantLines(t, out, "build gus with go1.26.0", "install "+prefix+"/bin/gus", "write "+prefix+"/share/zsh/site-functions/_gus", "installed gus v1", "is not in your PATH")
	if in.there(installedUnit) || in.there(installedData) {
		t.Error("--prefix installs a service")
	}

	before := in.tree()
	in.env = append(environment, "FAKE_GUS=/nowhere")
	_, errs, code = in.run("--prefix", prefix)
	if code != 1 || !strings.Contains(errs, "install.sh: could not build gus with go1.26.0\n") {
		t.Errorf("exit code %d, %q", code, errs)
	}
	if !maps.Equal(before, in.tree()) {
		t.Error("a build that failed changed something")
	}

	if out, errs, code = in.run("--prefix="+prefix, "--uninstall"); code != 0 || in.there("opt/bin/gus") || in.there("opt/share/bash-completion/completions/gus") {
		t.Errorf("--uninstall: exit code %d, %s%s", code, out, errs)
	}
}
