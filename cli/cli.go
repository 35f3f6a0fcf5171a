package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"
)

// app is one run of the program.
type app struct {
	in       io.Reader
	out, err io.Writer
	program  string // the file of this program; empty where it is not one of its own
}

// Main runs the command that args (without the program's name) ask for and
// returns the exit code. SIGINT and SIGTERM end what runs until stopped.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{in: in, out: out, err: errs}
	a.program, _ = os.Executable()
	err := a.run(ctx, args)
	if err != nil {
		fmt.Fprintln(errs, "gus:", oneLine(err.Error()))
	}
	return exitCode(err)
}

func (a *app) run(ctx context.Context, args []string) error {
	c := a.app()
	args, err := arrange(c.Commands, args)
	if err != nil {
		return err
	}
	return c.RunContext(ctx, slices.Concat([]string{"gus"}, args))
}

func (a *app) app() *cli.App {
	return &cli.App{
		Name:  "gus",
		Usage: "small values, the same at all your sites: linearizable, without a leader",
		Description: "Every site runs `gus agent`; the other commands talk to the agent of their machine.\n" +
			"`gus demo` shows it all in one process. Three sites of your own:\n\n" +
			"   site-a$ gus init --name site-a --voters site-a,site-b,site-c\n" +
			"   site-a$ gus agent &\n" +
			"   site-a$ gus token\n" +
			"   site-b$ gus join gus1-... --name site-b && gus agent &\n" +
			"   site-c$ gus join gus1-... --name site-c && gus agent &\n" +
			"   site-a$ gus set app/port 8080\n" +
			"   site-c$ gus get app/port",
		HideVersion:     true,
		HideHelpCommand: true,
		Commands: []*cli.Command{
			a.setCommand(), a.getCommand(), a.deleteCommand(), a.listCommand(),
			a.watchCommand(), a.exportCommand(), a.importCommand(),
			a.historyCommand(), a.diffCommand(), a.rollbackCommand(),
			a.syncCommand(),
			a.snapshotCommand(), a.recoverCommand(),
			a.membersCommand(), a.statusCommand(), a.waitCommand(),
			a.initCommand(), a.tokenCommand(), a.joinCommand(),
			a.agentCommand(), a.demoCommand(), a.benchCommand(), a.versionCommand(), a.completionCommand(),
		},
		Writer:         a.out,
		ErrWriter:      a.err,
		Reader:         a.in,
		ExitErrHandler: func(*cli.Context, error) {}, // Main alone decides on exit codes
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return usage("%v", err) },
		Action:         cli.ShowAppHelp,
	}
}

// command returns c with what all commands have in common.
func command(c cli.Command) *cli.Command {
	c.HideHelpCommand = true
	c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return badFlag(c, err) }
	c.Flags = append(c.Flags, cli.HelpFlag)
	return &c
}

func (a *app) versionCommand() *cli.Command {
	return command(cli.Command{
		Name:      "version",
		Usage:     "print the program's version",
		ArgsUsage: " ",
		Flags:     []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0); err != nil {
				return err
			}
			if c.Bool("json") {
				return a.printJSON(map[string]string{"version": programVersion()})
			}
			fmt.Fprintln(a.out, "gus", programVersion())
			return nil
		},
	})
}

// programVersion is the module's version as the build recorded it, or the
// commit where the module had none.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
