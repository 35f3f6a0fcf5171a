package cli

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent"
	"gus/agent/files"
)

// setting is a value of the agent's and where it is from.
type setting struct {
	name  string // as in the file
	value string
	from  string // "--listen", "GUS_LISTEN", "/etc/gus/gus.toml:3", "default"
}

// settings are all that an agent is started with: flags before variables, those before the
// file, the file before the defaults.
type settings struct {
	file  *configFile
	all   []setting    // in the order of settingFlags
	pulls []files.Pull // of the file
}

// settingFlags are the flags that are settings, by their names in the file.
var settingFlags = []struct{ name, flag, variable string }{
	{"data", "data", "GUS_DATA"},
	{"socket", "socket", "GUS_SOCKET"},
	{"listen", "listen", "GUS_LISTEN"},
	{"advertise", "advertise", "GUS_ADVERTISE"},
	{"seeds", "seed", "GUS_SEEDS"},
	{"log-format", "log-format", "GUS_LOG_FORMAT"},
	{"log-level", "log-level", "GUS_LOG_LEVEL"},
	{"retain-for", "retain-for", "GUS_RETAIN_FOR"},
	{"retain-bytes", "retain-bytes", "GUS_RETAIN_BYTES"},
	{"retain-epochs", "retain-epochs", "GUS_RETAIN_EPOCHS"},
	{"backup-every", "backup-every", "GUS_BACKUP_EVERY"},
	{"backup-dir", "backup-dir", "GUS_BACKUP_DIR"},
	{"backup-keep", "backup-keep", "GUS_BACKUP_KEEP"},
}

// readSettings reads the configuration file and says what holds, or what is wrong with it.
func readSettings(c *cli.Context) (settings, error) {
	f, err := openConfig(c.String("config"))
	if err != nil {
		return settings{}, err
	}
	s := settings{file: f}
	for _, sf := range settingFlags {
		s.all = append(s.all, settingOf(c, f, sf.name, sf.flag, sf.variable))
	}
	if err := s.check(); err != nil {
		return s, err
	}
	if s.pulls, err = f.pulls(); err != nil {
		return s, err
	}
	return s, s.validate()
}

// validate has the agent say what is wrong, and finds the table that it means.
func (s settings) validate() error {
	cfg := s.agentConfig()
	cfg.Syncs = nil
	if err := cfg.Validate(); err != nil {
		return usage("agent: %v", err)
	}
	for i := range s.pulls {
		cfg.Syncs = s.pulls[:i+1]
		if err := cfg.Validate(); err != nil {
			return usage("%s: %v", s.file.place(fmt.Sprintf("sync.%d", i)), err)
		}
	}
	return nil
}

func settingOf(c *cli.Context, f *configFile, name, flag, variable string) setting {
	given := c.String(flag)
	if name == "seeds" {
		given = strings.Join(c.StringSlice(flag), ",")
	}
	switch {
	case given != "" && c.IsSet(flag):
		// The library does not tell a flag from its variable. Where both say the same it is
		// no matter which.
		if given == os.Getenv(variable) {
			return setting{name, given, variable}
		}
		return setting{name, given, "--" + flag}
	case f.value(name) != "":
		return setting{name, f.value(name), f.place(name)}
	}
	return setting{name, map[string]string{
		"data": defaultData(), "listen": agent.DefaultListen, "log-format": "text", "log-level": "info",
		"retain-for": "24h", "backup-keep": strconv.Itoa(agent.DefaultBackupKeep),
	}[name], "default"}
}

// check says what is wrong with a value, and where it stands.
func (s settings) check() error {
	for _, v := range s.all {
		bad, why := v.wrong()
		switch {
		case why == "":
		case s.file.path != "" && strings.HasPrefix(v.from, s.file.path):
			return usage("%s: %s %q: %s", v.from, v.name, bad, why)
		default:
			return usage("agent: %s %q: %s", v.from, bad, why)
		}
	}
	return nil
}

// wrong returns what of the value is bad, and why; where all is good, no reason.
func (v setting) wrong() (bad, why string) {
	switch v.name {
	case "listen":
		if _, port, err := net.SplitHostPort(v.value); err != nil || !isPort(port) {
			return v.value, "must be HOST:PORT, as in 192.0.2.1:7487, or :7487 for all addresses"
		}
	case "advertise", "seeds":
		for _, addr := range strings.Split(v.value, ",") {
			host, port, err := net.SplitHostPort(addr)
			if addr != "" && (err != nil || host == "" || port == "0" || !isPort(port)) {
				return addr, "is not HOST:PORT with a port of 1 to 65535"
			}
		}
	case "backup-every":
		if d, err := time.ParseDuration(v.value); v.value != "" && (err != nil || d < time.Minute) {
			return v.value, "must be a duration of a minute at least, as in 24h"
		}
	case "backup-keep":
		if n, err := strconv.Atoi(v.value); err != nil || n < 1 {
			return v.value, "must be a number, 1 at least"
		}
	case "log-format":
		if v.value != "text" && v.value != "json" {
			return v.value, "must be text or json"
		}
	case "log-level":
		if _, ok := logLevels[v.value]; !ok {
			return v.value, "must be debug, info, warn or error"
		}
	default:
		return v.wrongRetention()
	}
	return "", ""
}

// wrongRetention is wrong of what says how much of the past is kept.
func (v setting) wrongRetention() (bad, why string) {
	switch v.name {
	case "retain-for":
		if d, err := time.ParseDuration(v.value); err != nil || d < time.Minute {
			return v.value, "must be a duration of a minute or more, such as 24h"
		}
	case "retain-bytes":
		if _, ok := bytesOf(v.value); !ok && v.value != "" {
			return v.value, "must be a number of bytes, such as 500MiB or 2GiB"
		}
	case "retain-epochs":
		if n, err := strconv.ParseInt(v.value, 10, 64); (err != nil || n < 0) && v.value != "" {
			return v.value, "must be a number of epochs, 0 for no limit"
		}
	}
	return "", ""
}

// bytesOf reads a number of bytes, above 0.
func bytesOf(text string) (int64, bool) {
	unit := int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = number, u
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n * unit, err == nil && n > 0 && n <= (1<<62)/unit
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// logLevels are the levels that a log may begin at.
var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

func (s settings) get(name string) string {
	for _, v := range s.all {
		if v.name == name {
			return v.value
		}
	}
	return ""
}

// agentConfig returns what package agent needs to know.
func (s settings) agentConfig() agent.Config {
	cfg := agent.Config{
		Data:      s.get("data"),
		Socket:    cmp.Or(s.get("socket"), filepath.Join(s.get("data"), "gus.sock")),
		Listen:    s.get("listen"),
		Advertise: s.get("advertise"),
		Syncs:     s.pulls,
		Version:   programVersion(),
	}
	cfg.Retain.For, _ = time.ParseDuration(s.get("retain-for"))
	cfg.Retain.Bytes, _ = bytesOf(s.get("retain-bytes"))
	cfg.Retain.Epochs, _ = strconv.ParseInt(s.get("retain-epochs"), 10, 64)
	cfg.Backups.Dir = s.get("backup-dir")
	cfg.Backups.Every, _ = time.ParseDuration(s.get("backup-every")) // both were checked; empty is 0
	cfg.Backups.Keep, _ = strconv.Atoi(s.get("backup-keep"))
	if seeds := s.get("seeds"); seeds != "" {
		cfg.Seeds = strings.Split(seeds, ",")
	}
	return cfg
}

// print says what holds and where each value is from.
func (s settings) print(w io.Writer) {
	head := "the configuration is good: there is no file " + defaultConfig()
	if s.file.path != "" {
		head = "configuration " + s.file.path + " is good:"
	}
	fmt.Fprintln(w, head)
	shown := map[string]string{
		"socket":    filepath.Join(s.get("data"), "gus.sock"),
		"advertise": "where they see it", "seeds": "none more",
		"retain-bytes": "a tenth of the disk", "retain-epochs": "no limit",
		"backup-every": "never", "backup-dir": "nowhere",
	}
	for _, v := range s.all {
		fmt.Fprintf(w, "  %-13s  %s  (%s)\n", v.name, cmp.Or(v.value, shown[v.name]), v.from)
	}
	for i, p := range s.pulls {
		fmt.Fprintf(w, "  %-13s  %s  (%s)\n", "sync", describePull(p), s.file.place(fmt.Sprintf("sync.%d", i)))
	}
}

// describePull says on one line what a [[sync]] does.
func describePull(p files.Pull) string {
	said := cmp.Or(p.Prefix, "all keys") + " to " + p.Dir
	if p.Template {
		said += ", template"
	}
	if p.Delete {
		said += ", delete"
	}
	if p.Check != "" {
		said += fmt.Sprintf(", check %q", p.Check)
	}
	if p.Exec != "" {
		said += fmt.Sprintf(", exec %q", p.Exec)
	}
	if p.Check != "" || p.Exec != "" {
		said += fmt.Sprintf(", exec-timeout %v", cmp.Or(p.Timeout, files.DefaultTimeout))
	}
	return said
}
