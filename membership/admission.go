package membership

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"gus/quic"
)

// TokenLifetime is how long a token usually lives.
const TokenLifetime = time.Hour

const (
	// errandTimeout is how long one site is asked, allTimeout all of them.
	errandTimeout = 5 * time.Second
	allTimeout    = 20 * time.Second
)

// AdmissionConfig is what an Admission is made of. All is required.
type AdmissionConfig struct {
	Identity      *quic.Identity
	Configuration Configuration
	Dir           string  // the identity directory
	Gossip        *Gossip // knows where others are
	Log           *slog.Logger
}

// Admission lets sites in. The founding site, whose identity directory has the
// authority's key, decides; any other passes what it is asked on to it. All
// methods may be called by several goroutines at the same time.
type Admission struct {
	cfg      AdmissionConfig
	log      *slog.Logger
	signer   *signer // nil at all sites but the founding one
	attempts attempts
	failures seldom

	mu       sync.Mutex
	endpoint *quic.Endpoint // nil before Run
}

// NewAdmission returns an Admission. It fails at a founding site whose books
// cannot be read: it must not guess which names are taken.
func NewAdmission(cfg AdmissionConfig) (*Admission, error) {
	if cfg.Identity == nil || cfg.Dir == "" || cfg.Gossip == nil || cfg.Log == nil {
		return nil, errors.New("admission needs an identity, its directory, gossip and a log")
	}
	s, err := loadSigner(cfg.Dir, cfg.Configuration)
	if err != nil {
		return nil, err
	}
	return &Admission{cfg: cfg, log: cfg.Log, signer: s, attempts: attempts{from: make(map[string]*tries)}}, nil
}

// Founding says whether this site is the founding one.
func (a *Admission) Founding() bool { return a.signer != nil }

// Run lets the lives of tokens pass until ctx ends, and then returns nil. It is
// called once; before it nothing can be passed on.
func (a *Admission) Run(ctx context.Context, e *quic.Endpoint) error {
	a.mu.Lock()
	a.endpoint = e
	a.mu.Unlock()
	if a.signer == nil {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(tokenAdvance / 2)
	defer ticker.Stop()
	for {
		if err := a.signer.saveTokens(tokenAdvance); err != nil {
			a.log.Warn("cannot note how long tokens live on", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return a.signer.saveTokens(0)
		}
	}
}

// NewToken makes a token that lives for life (1 s to MaxLifetime), for sites that
// can reach one of 1 to 4 addresses HOST:PORT. It may be called at any site that
// reaches the founding one, which is told a public key only.
func (a *Admission) NewToken(ctx context.Context, addresses []string, life time.Duration) (Token, error) {
	if life < time.Second || life > MaxLifetime {
		return Token{}, fmt.Errorf("a token's lifetime is 1s to %v, not %v", MaxLifetime, life)
	}
	if a.cfg.Identity.Role != quic.RoleVoter {
		return Token{}, fmt.Errorf("tokens are made by voters, and %s is an observer: run `gus token` at %s",
			a.cfg.Identity.Name, strings.Join(a.cfg.Configuration.names(), " or "))
	}
	t, err := newToken(a.cfg.Identity.Cluster, a.cfg.Identity.CA, addresses)
	if err != nil {
		return Token{}, err
	}
	public := t.key().Public().(ed25519.PublicKey)
	if _, err := a.decide(ctx, errand{Token: public, Lifetime: uint64(life / time.Second)}); err != nil {
		return Token{}, fmt.Errorf("make a token: %w", err)
	}
	return t, nil
}

// Join answers somebody who wants to become a site: for quic.Config.Join.
func (a *Admission) Join(ctx context.Context, r quic.JoinRequest) []byte {
	from := hostOf(r.From)
	if !a.attempts.allow(from) {
		return refusal(fmt.Errorf("%w have failed from your address: wait a minute", ErrTooManyAttempts)).encode()
	}
	out, err := a.decide(ctx, errand{Binding: r.Binding, Question: r.Body})
	if err != nil {
		if !errors.Is(err, ErrFounderAway) && !errors.Is(err, errFounderCannot) {
			a.attempts.failed(from)
		}
		if a.failures.due() {
			a.log.Warn("somebody could not join", "from", r.From, "err", err)
		}
		return refusal(err).encode()
	}
	out.Peers = a.peers()
	q, _ := openQuestion(r.Body, r.Binding) // good, or it had not been let in
	a.log.Info("a site has joined", "peer", q.Name, "from", r.From)
	return out.encode()
}

// hostOf is what attempts are counted by: an IPv4 address, or the network of an
// IPv6 address, of which one machine may have any number.
func hostOf(addr net.Addr) string {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := ap.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
}

// peers is which voters a new site is told of, this one first.
func (a *Admission) peers() []Peer {
	var all []Peer
	if own := a.cfg.Gossip.Address(); own != "" && a.cfg.Identity.Role == quic.RoleVoter {
		all = append(all, Peer{a.cfg.Identity.Name, a.cfg.Identity.Number, own})
	}
	all = append(all, a.cfg.Gossip.Peers()...)
	return all[:min(len(all), maxAnswerPeers)]
}

// Stream answers another site: for quic.Config.Handlers, at PurposeAdmission.
func (a *Admission) Stream(_ context.Context, from quic.Site, s *quic.Stream) {
	if err := a.serve(from, s); err != nil {
		a.log.Debug("an errand could not be answered", "peer", from.Name, "err", err)
	}
}

func (a *Admission) serve(from quic.Site, s *quic.Stream) error {
	if err := s.SetDeadline(time.Now().Add(errandTimeout)); err != nil {
		return fmt.Errorf("serve an errand: %w", err)
	}
	b, err := quic.ReadFrame(s, quic.MaxJoin)
	if err != nil {
		return err
	}
	out, err := a.errandOf(from, b)
	if err != nil {
		out = refusal(err)
	}
	return quic.WriteFrame(s, out.encode())
}

func (a *Admission) errandOf(from quic.Site, b []byte) (answer, error) {
	var e errand
	if err := hints.Unmarshal(b, &e); err != nil {
		return answer{}, errNotUnderstood
	}
	if a.signer == nil {
		return answer{}, errNotTheFounder
	}
	if e.Question == nil && from.Role != quic.RoleVoter {
		return answer{}, fmt.Errorf("%w: tokens are made by voters", errNotUnderstood)
	}
	return a.sign(e)
}

// sign has the signer decide, and keeps to this site what only concerns it.
func (a *Admission) sign(e errand) (answer, error) {
	out, err := a.signer.do(e)
	if err != nil && refusal(err).Code == codeCannot {
		a.log.Error("cannot sign", "err", err)
		return answer{}, errFounderCannot
	}
	return out, err
}

// decide has the founding site decide, here or there.
func (a *Admission) decide(ctx context.Context, e errand) (answer, error) {
	if a.signer != nil {
		return a.sign(e)
	}
	ctx, cancel := context.WithTimeout(ctx, allTimeout)
	defer cancel()
	a.mu.Lock()
	endpoint := a.endpoint
	a.mu.Unlock()
	var asked []string
	if endpoint != nil {
		for _, p := range endpoint.Status().Peers {
			if !p.Connected || p.Role != quic.RoleVoter { // the founding site is a voter
				continue
			}
			asked = append(asked, p.Name)
			out, err := a.ask(ctx, endpoint, p.Name, e)
			if err == nil {
				err = out.err()
				if !errors.Is(err, errNotTheFounder) {
					return out, err
				}
			}
		}
	}
	if len(asked) == 0 {
		return answer{}, fmt.Errorf("%w from %s, which is connected with nobody: try again, or another address", ErrFounderAway, a.cfg.Identity.Name)
	}
	return answer{}, fmt.Errorf("%w from %s: none of %s has the authority's key. Start the founding site, and try again",
		ErrFounderAway, a.cfg.Identity.Name, strings.Join(asked, ", "))
}

// ask passes an errand on to one site.
func (a *Admission) ask(ctx context.Context, endpoint *quic.Endpoint, to string, e errand) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, errandTimeout)
	defer cancel()
	b, err := encoding.Marshal(e)
	if err != nil {
		return answer{}, fmt.Errorf("encode an errand: %w", err)
	}
	s, err := endpoint.OpenStream(ctx, to, PurposeAdmission)
	if err != nil {
		return answer{}, err
	}
	defer s.Close()
	if err := s.SetDeadline(time.Now().Add(errandTimeout)); err != nil {
		return answer{}, fmt.Errorf("pass an errand on: %w", err)
	}
	if err := quic.WriteFrame(s, b); err != nil {
		return answer{}, err
	}
	if b, err = quic.ReadFrame(s, quic.MaxJoin); err != nil {
		return answer{}, err
	}
	return decodeAnswer(b)
}
