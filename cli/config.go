package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"gus/agent/files"
)

// systemConfig is the configuration file of root's agent and of the service.
const systemConfig = "/etc/gus/gus.toml"

// configFile is the agent's configuration file. What is not in it, and what is
// empty, is not said.
type configFile struct {
	Data      string   `toml:"data"`
	Socket    string   `toml:"socket"`
	Listen    string   `toml:"listen"`
	Advertise string   `toml:"advertise"`
	Seeds     []string `toml:"seeds"`
	LogFormat string   `toml:"log-format"`
	LogLevel  string   `toml:"log-level"`

	RetainFor    string `toml:"retain-for"`
	RetainBytes  string `toml:"retain-bytes"`
	RetainEpochs int64  `toml:"retain-epochs"`

	BackupEvery string `toml:"backup-every"`
	BackupDir   string `toml:"backup-dir"`
	BackupKeep  int    `toml:"backup-keep"`

	Sync []syncTable `toml:"sync"`

	path  string // empty: there is none
	lines map[string]int
}

// syncTable is a [[sync]] of the file: keys that are to be files.
type syncTable struct {
	Prefix      string `toml:"prefix"`
	Dir         string `toml:"dir"`
	Exec        string `toml:"exec"`
	Check       string `toml:"check"`
	ExecTimeout string `toml:"exec-timeout"`
	Delete      bool   `toml:"delete"`
	Template    bool   `toml:"template"`
}

// configNames are the names at the top of the file, and syncNames those of a [[sync]].
var (
	configNames = []string{"data", "socket", "listen", "advertise", "seeds", "log-format", "log-level", "retain-for", "retain-bytes", "retain-epochs",
		"backup-every", "backup-dir", "backup-keep", "sync"}
	syncNames = []string{"prefix", "dir", "exec", "check", "exec-timeout", "delete", "template"}
)

// defaultConfig is where the configuration file is that nobody has named: the
// service manager says where the service's is, root's is that of the system,
// and other users have one of their own.
func defaultConfig() string {
	if dir := os.Getenv("CONFIGURATION_DIRECTORY"); dir != "" {
		return filepath.Join(dir, "gus.toml")
	}
	if os.Geteuid() == 0 {
		return systemConfig
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return systemConfig
	}
	return filepath.Join(dir, "gus", "gus.toml")
}

// openConfig reads the file that was named, which must be there, or else the one
// in the default place, if there is one.
func openConfig(named string) (*configFile, error) {
	path := cmp.Or(named, defaultConfig())
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		return parseConfig(path, text)
	case named == "" && errors.Is(err, fs.ErrNotExist):
		return &configFile{}, nil
	}
	return nil, usage("read the configuration: %v", err)
}

// parseConfig reads a file's text, strictly: a name that was misspelt must not be ignored.
func parseConfig(path string, text []byte) (*configFile, error) {
	f := &configFile{path: path, lines: lineNumbers(text)}
	d := toml.NewDecoder(strings.NewReader(string(text))).DisallowUnknownFields()
	err := d.Decode(f)
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
		e := strict.Errors[0]
		line, _ := e.Position()
		return nil, usage("%s:%d: %s", path, line, unknownName(e.Key()))
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := e.Position()
		return nil, usage("%s:%d: %s", path, line, badTOML(e))
	}
	if err != nil {
		return nil, usage("%s: %v", path, err)
	}
	return f, nil
}

// unknownName says that there is no such name, and which one is near.
func unknownName(key toml.Key) string {
	known, name := configNames, ""
	if len(key) > 0 {
		name = key[len(key)-1]
	}
	if len(key) > 1 && key[0] == "sync" {
		known = syncNames
	}
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("unknown name %q: did you mean %s?", name, near)
	}
	return fmt.Sprintf("unknown name %q: there are %s", name, strings.Join(known, ", "))
}

// badTOML says what is wrong with what cannot be read. The library speaks of Go's
// types where a value is of the wrong kind.
func badTOML(e *toml.DecodeError) string {
	said := strings.TrimPrefix(e.Error(), "toml: ")
	if strings.Contains(said, " is already defined") || strings.Contains(said, " already exists") {
		return said + ": each name stands once, and tables are [[sync]]"
	}
	if !strings.HasPrefix(said, "cannot decode") || len(e.Key()) == 0 {
		return said + `: text stands in quotes, as in listen = ":7487"`
	}
	key := strings.Join(e.Key(), ".")
	switch key {
	case "seeds":
		return key + `: must be a list of texts, as in seeds = ["192.0.2.1:7487"]`
	case "sync":
		return key + ": must be a table: a line [[sync]], and its names below"
	case "backup-keep", "retain-epochs":
		return key + ": must be a number, as in " + key + " = 7"
	case "sync.delete", "sync.template":
		return key + ": must be true or false"
	}
	return key + `: must be a text in quotes, as in "app"`
}

// lineNumbers returns the line of each name of a TOML text: "listen", and
// "sync.0", "sync.0.dir" of the first [[sync]]. Of a text that is none, what
// stands above the mistake.
func lineNumbers(text []byte) map[string]int {
	lines := map[string]int{}
	var p unstable.Parser
	p.Reset(text)
	table, syncs := "", 0
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.Comment {
			continue
		}
		name, line := "", 0
		for it := e.Key(); it.Next(); {
			if line == 0 {
				line = p.Shape(it.Node().Raw).Start.Line
			}
			name += "." + string(it.Node().Data)
		}
		name = name[1:]
		switch {
		case e.Kind == unstable.KeyValue:
			name = table + name
		case name == "sync":
			name = fmt.Sprintf("sync.%d", syncs)
			syncs++
			table = name + "."
		default:
			table = name + "."
		}
		lines[name] = line
	}
	return lines
}

// place is FILE:LINE of a name in the file, or FILE where the line is not known.
func (f *configFile) place(name string) string {
	if line := f.lines[name]; line > 0 {
		return fmt.Sprintf("%s:%d", f.path, line)
	}
	return f.path
}

// value returns what the file says of the flag name, seeds separated by commas.
// Empty: nothing.
func (f *configFile) value(name string) string {
	switch name {
	case "data":
		return f.Data
	case "socket":
		return f.Socket
	case "listen":
		return f.Listen
	case "advertise":
		return f.Advertise
	case "seeds":
		return strings.Join(f.Seeds, ",")
	case "log-format":
		return f.LogFormat
	case "log-level":
		return f.LogLevel
	case "retain-for":
		return f.RetainFor
	case "retain-bytes":
		return f.RetainBytes
	case "retain-epochs":
		if f.RetainEpochs != 0 {
			return strconv.FormatInt(f.RetainEpochs, 10)
		}
	case "backup-every":
		return f.BackupEvery
	case "backup-dir":
		return f.BackupDir
	case "backup-keep":
		if f.BackupKeep != 0 {
			return strconv.Itoa(f.BackupKeep)
		}
	}
	return ""
}

// asked is what commands that ask the agent take from its configuration file.
type asked struct {
	Data   string `toml:"data"`
	Socket string `toml:"socket"`
}

// configured reads it. A mistake in any other name must not keep anybody from asking the agent
// that runs, so that only a text that is no TOML is an error, or a file that was named and is not there.
func configured(path string) (asked, error) {
	var a asked
	text, err := os.ReadFile(path)
	switch {
	case err != nil && errors.Is(err, fs.ErrNotExist) && os.Getenv("GUS_CONFIG") == "":
		return asked{}, nil
	case err != nil:
		return asked{}, fmt.Errorf("the agent's configuration: %w", err)
	}
	err = toml.Unmarshal(text, &a)
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := e.Position()
		return asked{}, fmt.Errorf("%s:%d is wrong: %s", path, line, badTOML(e))
	}
	if err != nil {
		return asked{}, fmt.Errorf("%s is wrong: %w", path, err)
	}
	return a, nil
}

// pulls returns what the [[sync]] tables ask for, or says what is wrong with one, and in which line.
func (f *configFile) pulls() ([]files.Pull, error) {
	var pulls []files.Pull
	for i, t := range f.Sync {
		name := fmt.Sprintf("sync.%d", i)
		p := files.Pull{Prefix: t.Prefix, Dir: t.Dir, Template: t.Template, Delete: t.Delete, Check: t.Check, Exec: t.Exec}
		if t.Dir == "" {
			return nil, usage("%s: a [[sync]] needs dir, where its files are to be", f.place(name))
		}
		if t.ExecTimeout != "" {
			var err error
			if p.Timeout, err = time.ParseDuration(t.ExecTimeout); err != nil || p.Timeout <= 0 {
				return nil, usage("%s: exec-timeout %q: not a duration such as 30s", f.place(name+".exec-timeout"), t.ExecTimeout)
			}
		}
		if err := p.Validate(); err != nil {
			return nil, usage("%s: [[sync]]: %v", f.place(name), err)
		}
		pulls = append(pulls, p)
	}
	return pulls, nil
}
