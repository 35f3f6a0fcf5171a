package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func udpSocket(t *testing.T) *net.UDPConn {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestDelayedPacketsKeepTheirOrder(t *testing.T) {
	defer goleak.VerifyNone(t)
	far, near := udpSocket(t), udpSocket(t)
	d := newDelayed(udpSocket(t), map[netip.AddrPort]time.Duration{far.LocalAddr().(*net.UDPAddr).AddrPort(): 5 * time.Millisecond})
	for i := range 100 {
		if _, err := d.WriteTo(fmt.Appendf(nil, "%d", i), far.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.WriteTo([]byte("at once"), near.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	for i := range 100 {
		n, from, err := far.ReadFrom(b)
		if err != nil || string(b[:n]) != fmt.Sprint(i) || from.String() != d.LocalAddr().String() {
			t.Fatalf("packet %d: %q from %v, %v", i, b[:n], from, err)
		}
	}
	if n, _, err := near.ReadFrom(b); err != nil || string(b[:n]) != "at once" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if _, err := d.WriteTo([]byte("on its way when the socket is closed"), far.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.WriteTo([]byte("late"), far.LocalAddr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a packet after Close: %v", err)
	}
}
