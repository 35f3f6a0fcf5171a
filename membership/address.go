package membership

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// LocalAddresses returns where this machine may be reached that listens at
// listen, as HOST:PORT, best first, at most 4: listen itself if that is one
// address; else the addresses of the interfaces that are up, without link-local
// ones, public before private, and loopback only where there is nothing else. It
// is a guess: who knows better says so (Config.Advertise).
func LocalAddresses(listen net.Addr) []string {
	udp, ok := listen.(*net.UDPAddr)
	if !ok {
		return nil
	}
	if len(udp.IP) > 0 && !udp.IP.IsUnspecified() {
		return []string{udp.String()}
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var ips []netip.Addr
	for _, a := range found {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || prefix.Addr().IsLinkLocalUnicast() || udp.IP.To4() != nil && !prefix.Addr().Is4() {
			continue
		}
		ips = append(ips, prefix.Addr())
	}
	return pick(ips, udp.Port)
}

// pick orders addresses and leaves the best.
func pick(ips []netip.Addr, port int) []string {
	rank := func(ip netip.Addr) int {
		switch {
		case ip.IsLoopback():
			return 2
		case ip.IsPrivate():
			return 1
		}
		return 0
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	var out []string
	for _, ip := range ips {
		if len(out) == maxTokenAddrs || ip.IsLoopback() && len(out) > 0 {
			break
		}
		out = append(out, net.JoinHostPort(ip.String(), strconv.Itoa(port)))
	}
	return out
}
