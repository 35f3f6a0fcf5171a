package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"gus/agent"
)

func listenFlag(usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: "listen", EnvVars: []string{"GUS_LISTEN"}, Usage: usage}
}

func (a *app) agentCommand() *cli.Command {
	listen := listenFlag("UDP address `HOST:PORT` for other sites")
	listen.Value = agent.DefaultListen
	return command(cli.Command{
		Name:      "agent",
		Usage:     "run this site's agent in the foreground",
		ArgsUsage: " ",
		Description: "Needs an identity in the data directory: see `gus init` and `gus join`. SIGTERM or Ctrl-C stops\n" +
			"it within seconds; the site remains a member. The other sites are found where joining said,\n" +
			"and where they were last; --seed adds addresses, names too, that are looked up at each try.\n\n" +
			"A flag comes before its variable, that before the configuration file, and that before the default;\n" +
			"a variable that is empty is not set. The file is TOML, with the names of the flags (seeds is a\n" +
			"list) and tables [[sync]], each with prefix and dir, and maybe exec, check, exec-timeout, delete\n" +
			"and template, as `gus sync pull` has them. SIGHUP has it read again: log-level and the tables are\n" +
			"put in force, the log says what needs a restart, and a file that is wrong changes nothing.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", EnvVars: []string{"GUS_CONFIG"}, Usage: "the configuration `FILE`", DefaultText: defaultConfig() + ", if it is there"},
			&cli.BoolFlag{Name: "check-config", Usage: "say what would hold and where each value is from, and run nothing"},
			dataFlag(), socketFlag(), listen,
			&cli.StringFlag{Name: "advertise", EnvVars: []string{"GUS_ADVERTISE"}, Usage: "where others reach this site, `HOST:PORT`", DefaultText: "where they see it"},
			&cli.StringSliceFlag{Name: "seed", EnvVars: []string{"GUS_SEEDS"}, Usage: "where another site may be, `HOST:PORT`; repeat it, or separate by commas"},
			&cli.StringFlag{Name: "log-format", EnvVars: []string{"GUS_LOG_FORMAT"}, Usage: "`FORMAT` of the log on stderr: text or json", Value: "text"},
			&cli.StringFlag{Name: "log-level", EnvVars: []string{"GUS_LOG_LEVEL"}, Usage: "log what is at least at `LEVEL`: debug, info, warn or error", Value: "info"},
			&cli.StringFlag{Name: "retain-for", EnvVars: []string{"GUS_RETAIN_FOR"}, Usage: "keep epochs for the duration `D` of running time", DefaultText: "24h"},
			&cli.StringFlag{Name: "retain-bytes", EnvVars: []string{"GUS_RETAIN_BYTES"}, Usage: "older versions may take `BYTES`, as in 2GiB", DefaultText: "a tenth of the disk"},
			&cli.StringFlag{Name: "retain-epochs", EnvVars: []string{"GUS_RETAIN_EPOCHS"}, Usage: "keep at most `N` epochs", DefaultText: "no limit"},
			&cli.StringFlag{Name: "backup-every", EnvVars: []string{"GUS_BACKUP_EVERY"}, Usage: "save a backup every `D`, as in 24h", DefaultText: "never"},
			&cli.StringFlag{Name: "backup-dir", EnvVars: []string{"GUS_BACKUP_DIR"}, Usage: "save them in `DIR`, best on another disk"},
			&cli.StringFlag{Name: "backup-keep", EnvVars: []string{"GUS_BACKUP_KEEP"}, Usage: "keep the newest `N` of them", DefaultText: strconv.Itoa(agent.DefaultBackupKeep)},
		},
		Action: a.agent,
	})
}

func (a *app) agent(c *cli.Context) error {
	if err := wantArgs(c, 0, 0); err != nil {
		return err
	}
	s, err := readSettings(c)
	if err != nil {
		return err
	}
	if c.Bool("check-config") {
		s.print(a.out)
		return nil
	}
	r := newReloader(a.err, s, func() (settings, error) { return readSettings(c) })
	defer r.start()()
	cfg := s.agentConfig()
	cfg.Logger, cfg.Reloads = r.log, r.syncs
	notify := notifierOf(cfg.Logger)
	var ready atomic.Bool
	cfg.Ready = func() { ready.Store(true); notify.send("READY=1") }
	defer context.AfterFunc(c.Context, func() { notify.send("STOPPING=1") })()
	err = agent.Run(c.Context, cfg)
	if ready.Load() && errors.Is(err, fs.ErrPermission) {
		return errors.New(err.Error()) // it had what it needs: the service manager is to start it again
	}
	return err
}

// newLog returns the agent's log, as text, or JSON that has addresses and ids as text
// has them, not taken apart.
func newLog(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	if format == "json" {
		asText := func(_ []string, a slog.Attr) slog.Attr {
			if v, ok := a.Value.Any().(fmt.Stringer); ok && a.Value.Kind() == slog.KindAny {
				return slog.String(a.Key, v.String())
			}
			return a
		}
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: asText}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
