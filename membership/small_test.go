package membership

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
)

func TestADescriptionFits(t *testing.T) {
	largest := meta{
		Number: register.MaxVoter, Configuration: 1<<64 - 1, Boot: 1<<64 - 1,
		Address: strings.Repeat("n", 253) + ":65535", Version: strings.Repeat("v", maxVersion),
	}
	b := largest.encode()
	if len(b) >= 512 {
		t.Errorf("%d bytes", len(b))
	}
	if got, err := decodeMeta(b); err != nil || got != largest {
		t.Errorf("%+v: %v", got, err)
	}
	// What a later version adds is skipped.
	b = append([]byte{b[0] + 1}, append(b[1:], 6, 0x18, 99)...)
	if got, err := decodeMeta(b); err != nil || got != largest {
		t.Errorf("with more in it: %+v: %v", got, err)
	}
}

func FuzzMeta(f *testing.F) {
	f.Add(meta{Number: 2, Address: "x:1", Version: "v1"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMeta(b); err == nil {
			if _, err := decodeMeta(m.encode()); err != nil {
				t.Errorf("%+v: %v", m, err)
			}
		}
	})
}

func TestWhereASiteSaysItIs(t *testing.T) {
	one := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 7487}
	six := &net.UDPAddr{IP: net.ParseIP("2001:db8::1"), Port: 7487}
	for name, c := range map[string]struct {
		advertise string
		listen    net.Addr
		before    string
		observed  []string
		want      string
	}{
		"as it was told":           {"a.example:1", one, "x:1", []string{"y:1"}, "a.example:1"},
		"where it listens":         {"", one, "x:1", []string{"y:1"}, "192.0.2.1:7487"},
		"where it listens, IPv6":   {"", six, "", nil, "[2001:db8::1]:7487"},
		"nobody knows":             {"", anywhere, "", nil, ""},
		"as others see it":         {"", anywhere, "", []string{"y:1"}, "y:1"},
		"as most see it":           {"", anywhere, "x:1", []string{"y:1", "x:1", "y:1"}, "y:1"},
		"as before, of as many":    {"", anywhere, "y:1", []string{"x:1", "y:1"}, "y:1"},
		"the least, of as many":    {"", anywhere, "", []string{"y:1", "x:1"}, "x:1"},
		"as before, while nobody":  {"", anywhere, "x:1", nil, "x:1"},
		"anew, when it has moved":  {"", anywhere, "x:1", []string{"y:1"}, "y:1"},
		"an odd kind of a socket":  {"", &net.UnixAddr{Name: "x"}, "", nil, ""},
		"one that says no address": {"", &net.UDPAddr{Port: 1}, "", []string{"x:1"}, "x:1"},
	} {
		if got := ownAddress(c.advertise, c.listen, c.before, c.observed); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestLocalAddresses(t *testing.T) {
	ips := func(s ...string) (out []netip.Addr) {
		for _, ip := range s {
			out = append(out, netip.MustParseAddr(ip))
		}
		return out
	}
	for _, c := range []struct{ found, want []string }{
		{[]string{"127.0.0.1", "::1"}, []string{"127.0.0.1:7"}},
		{[]string{"127.0.0.1", "10.0.0.1", "192.0.2.1", "2001:db8::1"}, []string{"192.0.2.1:7", "[2001:db8::1]:7", "10.0.0.1:7"}},
		{[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}, []string{"10.0.0.1:7", "10.0.0.2:7", "10.0.0.3:7", "10.0.0.4:7"}},
		{nil, nil},
	} {
		if got := pick(ips(c.found...), 7); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v, want %v", c.found, got, c.want)
		}
	}
	if got := LocalAddresses(addr(1)); len(got) != 1 || got[0] != addr(1).String() {
		t.Errorf("%v", got)
	}
	for _, a := range LocalAddresses(anywhere) {
		if err := checkAddress(a); err != nil || strings.Contains(a, "fe80") {
			t.Errorf("%q: %v", a, err)
		}
	}
}

func TestPeersAreRemembered(t *testing.T) {
	dir := t.TempDir()
	if peers, err := loadPeers(dir); err != nil || peers != nil {
		t.Errorf("nothing yet: %v, %v", peers, err)
	}
	want := []Peer{{"a", 1, "x:1"}, {"watcher", 0, "[2001:db8::1]:2"}}
	b, err := savePeers(dir, []Peer{want[1], want[0]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := loadPeers(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	// The same again does not touch the disk.
	path := filepath.Join(dir, peersFile)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := savePeers(dir, want, b); err != nil || exists(path) {
		t.Errorf("written again: %v", err)
	}
	for name, text := range map[string]string{
		"no JSON":       "x",
		"half":          string(b[:len(b)/2]),
		"a bad name":    `[{"name":"../x","address":"x:1"}]`,
		"a bad address": `[{"name":"x","address":"x"}]`,
		"too large":     strings.Repeat(" ", maxPeersFile+1),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := loadPeers(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// A memory that cannot be read does not keep a site from starting.
func TestABrokenMemory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		path := filepath.Join(w.dir, "b", peersFile)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		a, b := w.start(w.ids[0], 1), w.start(w.ids[1], 2, seeds(addr(1).String()))
		w.converged(a, b)
		mustContain(t, "b's log", b.log.String(), "cannot remember", path)
		mustContain(t, "the file", read(t, path), addr(1).String())
	}, "a", "b")
}

func TestTheBridgeIsCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := newBridge(slog.New(slog.NewTextHandler(&out, nil)))
		say := func(line string) {
			if n, err := b.Write([]byte(line)); n != len(line) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		say("[DEBUG] memberlist: Stream connection from=x\n")
		say("[INFO] memberlist: Suspect x has failed, no acks received\n")
		for range 100 {
			say("[ERR] memberlist: Push/Pull with x failed\n")
		}
		time.Sleep(bridgeInterval)
		say("[WARN] memberlist: Refuting a suspect message (from: x)\n")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("%q", lines)
		}
		mustContain(t, "the first line", lines[0], "level=INFO", `says="Push/Pull with x failed"`, "skipped=0")
		mustContain(t, "the second line", lines[1], "Refuting", "skipped=99")
	})
}

func TestConfigIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		good := Config{Identity: w.ids[0], Configuration: w.conf, Boot: 1, Data: w.dir, Listen: anywhere, Log: slog.New(slog.DiscardHandler)}
		if err := good.Validate(); err != nil {
			t.Fatal(err)
		}
		for what, change := range map[string]func(*Config){
			"no identity":      func(c *Config) { c.Identity = nil },
			"no boot":          func(c *Config) { c.Boot = 0 },
			"no configuration": func(c *Config) { c.Configuration = Configuration{} },
			"a seed":           func(c *Config) { c.Seeds = []string{"nowhere"} },
			"many seeds":       func(c *Config) { c.Seeds = make([]string, maxSeeds+1) },
			"an address":       func(c *Config) { c.Advertise = ":7487" },
			"a version":        func(c *Config) { c.Version = strings.Repeat("v", maxVersion+1) },
		} {
			c := good
			change(&c)
			if _, err := NewGossip(c); err == nil {
				t.Errorf("%s: no error", what)
			}
		}
	}, "a")
}
