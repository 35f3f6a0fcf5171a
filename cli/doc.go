// Package cli is the command line: it parses, asks the agent, and prints.
//
// Each command is one file and one value of *cli.Command; what it does is a
// method of app, which carries the three streams of the process and nothing
// else, so that a test can run any command without a process.
//
// # Why the arguments are arranged first
//
// The library under it (urfave/cli v2) stops to look for flags at the first
// argument that is none: in `gus set key value --json` the last word would
// silently be an argument. A user's flag must never be ignored, so arrange
// (args.go) puts flags before arguments, by the flags that the command knows,
// and refuses those that it does not know, with the nearest it does.
//
// # What holds
//
//   - stdout has what was asked for and nothing else: `gus get` prints the value's
//     bytes without a newline. All else goes to stderr.
//   - An error is one line that says what is wrong and what to do about it. Its
//     exit code (exit.go) tells scripts what they branch on: 0 done, 1 failed, 2 wrong
//     usage, 3 no such key, 4 no quorum or not sent in time (nothing changed), 5 the
//     agent is not running, 6 refused, 7 outcome unknown.
//   - Only Main touches signals, but for SIGHUP, which is for an agent alone (configreload.go),
//     and nothing here calls os.Exit.
package cli
