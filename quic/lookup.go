package quic

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// maxAddrs is how many addresses of one name count.
const maxAddrs = 8

// lookup returns the addresses of host:port, at most maxAddrs; find finds those
// of a name, nil asks the system. Nothing is kept: names move.
func lookup(ctx context.Context, addr string, find func(context.Context, string) ([]netip.Addr, error)) ([]*net.UDPAddr, error) {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return []*net.UDPAddr{net.UDPAddrFromAddrPort(ap)}, nil
	}
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address %q is not HOST:PORT: %w", addr, err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return nil, fmt.Errorf("resolve the port of %q: %w", addr, err)
	}
	if find == nil {
		find = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	ips, err := find(ctx, host)
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, fmt.Errorf("resolve %q: %w", addr, err)
	}
	var out []*net.UDPAddr
	for _, ip := range ips[:min(len(ips), maxAddrs)] {
		out = append(out, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip.Unmap(), uint16(port))))
	}
	return out, nil
}
