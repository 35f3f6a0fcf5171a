package cli

import (
	"log/slog"
	"net"
	"os"
)

// notifier tells systemd how the agent is, by its protocol of one datagram a
// message to the socket in NOTIFY_SOCKET (sd_notify(3)).
type notifier struct {
	socket string // empty: systemd did not start this process, and nobody is told
	log    *slog.Logger
}

func notifierOf(log *slog.Logger) notifier {
	return notifier{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
}

// send sends one message. That it failed is logged: systemd will say so, too, by
// ending a start that nobody told it of.
func (n notifier) send(state string) {
	if n.socket == "" {
		return
	}
	// A name in Linux's abstract space begins with @, here and there.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		defer c.Close()
		_, err = c.Write([]byte(state))
	}
	if err != nil {
		n.log.Warn("cannot notify systemd", "state", state, "err", err)
	}
}
