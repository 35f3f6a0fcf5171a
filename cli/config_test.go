package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gus/agent/files"
)

// A mistake in the file is one line, with the file's name and the line.
func TestConfigMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"# x\n\nlisen = \":1\"":                  `:3: unknown name "lisen": did you mean listen?`,
		"seed = \"a:1\"":                         `:1: unknown name "seed": did you mean seeds?`,
		"watermelon = 1":                         `:1: unknown name "watermelon": there are data, socket,`,
		"[[sync]]\ndir = \"/x\"\nperfix = \"a\"": `:3: unknown name "perfix": did you mean prefix?`,
		"[[sync]]\nlisten = \"x\"":               `:2: unknown name "listen": `,
		"[sinc]\na = 1":                          `:1: unknown name "sinc": did you mean sync?`,
		"listen = 7487":                          `:1: listen: must be a text in quotes`,
		"data = \"/x\"\nseeds = \"a:1\"":         `:2: seeds: must be a list of texts`,
		"listen = :7487":                         `:1: `,
		"listen = \":1\"\nlisten = \":2\"":       `:2: key listen is already defined: each name stands once`,
		"data = \"/x\"\nlisten = \"nowhere\"":    `:2: listen "nowhere": must be HOST:PORT`,
		"seeds = [\"a:1\", \"b\"]":               `:1: seeds "b": is not HOST:PORT`,
		"advertise = \":7487\"":                  `:1: advertise ":7487": is not HOST:PORT`,
		"log-level = \"loud\"":                   `:1: log-level "loud": must be debug, info, warn or error`,
		"log-format = \"xml\"":                   `:1: log-format "xml": must be text or json`,
		"[[sync]]\ndir = \"/x\"\ndelete = \"y\"": `:3: sync.delete: must be true or false`,
		"\n[[sync]]\nprefix = \"a/\"":            `:2: a [[sync]] needs dir`,
		"[[sync]]\ndir = \"/x\"\n\n[[sync]]\ndir = \"/y\"\nprefix = \"b/\"\nexec-timeout = \"5\"": `:7: exec-timeout "5": not a duration such as 30s`,
		"[[sync]]\ndir = \"/x\"\n[[sync]]\ndir = \"/y\"\nprefix = \"no-slash\"":                   `:3: [[sync]]: `,
		"[[sync]]\nprefix = \"a/\"\ndir = \"/x\"\n\n[[sync]]\nprefix = \"b/\"\ndir = \"/x/y\"":    `:5: `,
		"backup-every = \"10s\"\nbackup-dir = \"/x\"":                                             `:1: backup-every "10s": must be a duration of a minute at least, as in 24h`,
		"backup-keep = -1":    `:1: backup-keep "-1": must be a number, 1 at least`,
		"backup-keep = \"7\"": `:1: backup-keep: must be a number, as in backup-keep = 7`,
		"\xff":                `:1: `,
	} {
		path := filepath.Join(t.TempDir(), "gus.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a := &app{out: io.Discard, err: io.Discard}
		err := a.run(t.Context(), []string{"agent", "--check-config", "--config", path, "--data", "x"})
		if err == nil || !errors.Is(err, errUsage) || !strings.HasPrefix(err.Error(), path+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A flag comes before its variable, that before the file, and that before the default. A
// variable that is empty is not set.
func TestWhatComesBeforeWhat(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CONFIGURATION_DIRECTORY", dir)
	path := filepath.Join(dir, "gus.toml")
	text := "data = \"/file\"\nlisten = \":1\"\nadvertise = \"file:1\"\nlog-level = \"warn\"\nbackup-every = \"24h\"\n" +
		"[[sync]]\nprefix = \"app/\"\ndir = \"/etc/app\"\nexec = \"reload\"\ncheck = \"check\"\nexec-timeout = \"5s\"\ndelete = true\ntemplate = true\n" +
		"[[sync]]\ndir = \"/all\"\nexec = 'x \"y\"'\n[[sync]]\nprefix = \"b/\"\ndir = \"/b\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"GUS_DATA": "/variable", "GUS_LISTEN": "", "GUS_ADVERTISE": "variable:1", "GUS_SEEDS": "a:1,b:2", "GUS_CONFIG": "", "GUS_SOCKET": "", "GUS_LOG_LEVEL": "", "GUS_BACKUP_DIR": "/variable-backups"} {
		t.Setenv(name, value)
	}
	var out bytes.Buffer
	a := &app{out: &out, err: io.Discard}
	if err := a.run(t.Context(), []string{"agent", "--check-config", "--advertise", "flag:1", "--backup-keep", "3"}); err != nil {
		t.Fatal(err)
	}
	want := "configuration " + path + ` is good:
  data           /variable  (GUS_DATA)
  socket         /variable/gus.sock  (default)
  listen         :1  (` + path + `:2)
  advertise      flag:1  (--advertise)
  seeds          a:1,b:2  (GUS_SEEDS)
  log-format     text  (default)
  log-level      warn  (` + path + `:4)
  retain-for     24h  (default)
  retain-bytes   a tenth of the disk  (default)
  retain-epochs  no limit  (default)
  backup-every   24h  (` + path + `:5)
  backup-dir     /variable-backups  (GUS_BACKUP_DIR)
  backup-keep    3  (--backup-keep)
  sync           app/ to /etc/app, template, delete, check "check", exec "reload", exec-timeout 5s  (` + path + `:6)
  sync           all keys to /all, exec "x \"y\"", exec-timeout 30s  (` + path + `:14)
  sync           b/ to /b  (` + path + `:17)
`
	if out.String() != want {
		t.Errorf("said\n%s want\n%s", out.String(), want)
	}
	f, err := openConfig("")
	if err != nil {
		t.Fatal(err)
	}
	pulls, err := f.pulls()
	if err != nil || len(pulls) != 3 {
		t.Fatal(pulls, err)
	}
	p := pulls[0]
	if p.Prefix != "app/" || p.Dir != "/etc/app" || p.Exec != "reload" || p.Check != "check" || p.Timeout != 5*time.Second || !p.Delete || !p.Template {
		t.Errorf("%+v", p)
	}
}

// A file that was named must be there; one in the default place need not.
func TestConfigThatIsNotThere(t *testing.T) {
	t.Setenv("CONFIGURATION_DIRECTORY", t.TempDir())
	if f, err := openConfig(""); err != nil || f.path != "" {
		t.Error(f, err)
	}
	if _, err := openConfig(filepath.Join(t.TempDir(), "gus.toml")); !errors.Is(err, errUsage) {
		t.Error(err)
	}
}

// Commands that ask the agent find it where its file says, and do not mind what else in the file
// is wrong. Where they do not find it and the file cannot be read, they say so.
func TestCommandsFindTheConfiguredAgent(t *testing.T) {
	dir := t.TempDir()
	s := &fakeStore{keys: map[string][]byte{"k": []byte("v")}}
	socket := startFake(t, s)
	path := filepath.Join(dir, "gus.toml")
	t.Setenv("GUS_CONFIG", path)
	get := func(text string) (string, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		a := &app{out: &out, err: io.Discard}
		err := a.run(t.Context(), []string{"get", "k"})
		return out.String(), err
	}
	where := "socket = \"" + socket + "\"\n"
	for _, text := range []string{where, where + "lisen = 1", "log-level = 3\n" + where + "[sinc]\na = 1"} {
		if v, err := get(text); v != "v" || err != nil {
			t.Errorf("%q: %q, %v", text, v, err)
		}
	}
	t.Setenv("XDG_STATE_HOME", dir)
	if exists(serviceSocket) || exists(filepath.Join(defaultData(), "gus.sock")) {
		t.Skip("an agent runs here")
	}
	for text, want := range map[string]string{
		where + "listen = :7487": path + ":2 is wrong: ",
		"socket = 7":             path + ":1 is wrong: socket: must be a text in quotes",
	} {
		if _, err := get(text); exitCode(err) != exitNotRunning || !strings.Contains(err.Error(), " ("+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	absent := filepath.Join(dir, "absent.toml")
	t.Setenv("GUS_CONFIG", absent)
	if _, err := get(where); exitCode(err) != exitNotRunning || !strings.Contains(err.Error(), " (the agent's configuration: open "+absent) {
		t.Error(err)
	}
}

// SIGHUP puts in force what can be, names what needs a restart, and a file that is
// wrong changes nothing.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gus.toml")
	read := func() (settings, error) {
		f, err := openConfig(path)
		if err != nil {
			return settings{}, err
		}
		s := settings{file: f}
		for _, sf := range settingFlags {
			s.all = append(s.all, setting{sf.name, f.value(sf.name), f.place(sf.name)})
		}
		s.pulls, err = f.pulls()
		return s, err
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("listen = \":1\"\nlog-format = \"text\"\nlog-level = \"warn\"\n")
	s, err := read()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := newReloader(&log, s, read)
	reload := func(text string, want ...string) {
		t.Helper()
		write(text)
		log.Reset()
		r.reload()
		for _, w := range want {
			if !strings.Contains(log.String(), w) {
				t.Errorf("%q is missing in %s", w, log.String())
			}
		}
		if len(want) != strings.Count(log.String(), "\n") {
			t.Errorf("logged %s", log.String())
		}
	}
	reload("listen = \":1\"\nlog-format = \"text\"\nlog-level = \"info\"\n[[sync]]\nprefix = \"a/\"\ndir = \"/a\"\n", "level=INFO")
	reloaded := func() []files.Pull {
		select {
		case p := <-r.syncs:
			return p
		default:
			return nil
		}
	}
	if p := reloaded(); len(p) != 1 || p[0].Prefix != "a/" {
		t.Errorf("syncs: %+v", p)
	}
	reload("lisen = \":1\"\n", "level=ERROR msg=\"the configuration is wrong and changes nothing\" err=\""+path+":1: ")
	if p := reloaded(); p != nil {
		t.Errorf("a file that is wrong makes syncs: %+v", p)
	}
	r.log.Info("still at info")
	if !strings.Contains(log.String(), "still at info") {
		t.Error("a file that is wrong changed the level")
	}
	reload("listen = \":2\"\nlog-format = \"json\"\nlog-level = \"warn\"\n[[sync]]\nprefix = \"b/\"\ndir = \"/b\"\n", `level=WARN msg="some of the configuration is in force after a restart only" names="[listen log-format]"`)
	write("listen = \":1\"\nlog-format = \"text\"\nlog-level = \"warn\"\n")
	r.reload() // twice before the agent looks: the last one counts
	if p, ok := <-r.syncs; !ok || len(p) != 0 {
		t.Errorf("syncs: %+v", p)
	}
}
