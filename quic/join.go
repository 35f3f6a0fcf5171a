package quic

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// JoinALPN is what somebody speaks who wants to become a site and so has no
// certificate: one question, one answer, and no other lane.
const JoinALPN = "gus-join/1"

// MaxJoin is the size of the largest question and of the largest answer in
// bytes.
const MaxJoin = 16 << 10

const (
	// maxJoins is how many may be asking to join at once.
	maxJoins = 8
	// joinTimeout is how long an answer may take: it may come from another
	// site.
	joinTimeout = 30 * time.Second
	// bindingLabel makes of a connection a value that both ends know and no
	// other connection has (RFC 8446, 7.5).
	bindingLabel = "EXPORTER-gus-join"
	bindingSize  = 32
)

// ErrOtherCluster is returned by DialJoin where a site of another cluster
// answers, or nobody who can prove to be of this one.
var ErrOtherCluster = errors.New("not a site of the token's cluster")

// JoinRequest is what somebody unknown asks.
type JoinRequest struct {
	From    net.Addr
	Binding []byte // what the asking end gets from JoinConn.Binding
	Body    []byte // at most MaxJoin bytes
}

// joinServer proves who this site is to somebody without a certificate. The
// authority's certificate goes along: the other side knows only its fingerprint.
func joinServer(id *Identity) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{JoinALPN},
		Certificates:           []tls.Certificate{{Certificate: [][]byte{id.Certificate.Raw, id.CA.Raw}, PrivateKey: id.Key}},
		SessionTicketsDisabled: true,
	}
}

// serveJoin answers one question. left is called when the connection has ended.
func (e *Endpoint) serveJoin(ctx context.Context, qc *quicgo.Conn, left func()) {
	defer left()
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if err := e.answerJoin(ctx, qc); err != nil {
		e.limited.warn("could not answer who asks to join", "from", qc.RemoteAddr(), "err", err)
		_ = refuse(qc, err)
		return
	}
	select { // who asked ends it, having read the answer
	case <-qc.Context().Done():
	case <-ctx.Done():
	case <-time.After(grace):
	}
	_ = qc.CloseWithError(connClosed, "")
}

func (e *Endpoint) answerJoin(ctx context.Context, qc *quicgo.Conn) error {
	hearing, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	qs, err := qc.AcceptStream(hearing)
	if err != nil {
		return fmt.Errorf("wait for a question: %w", err)
	}
	st := &Stream{qs: qs, conn: qc}
	defer st.Close()
	if err := st.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return fmt.Errorf("wait for a question: %w", err)
	}
	body, err := ReadFrame(st, MaxJoin)
	if err != nil {
		return fmt.Errorf("wait for a question: %w", err)
	}
	binding, err := bindingOf(qc)
	if err != nil {
		return err
	}
	answer := e.cfg.Join(ctx, JoinRequest{From: qc.RemoteAddr(), Binding: binding, Body: body})
	if err := st.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return WriteFrame(st, answer)
}

func bindingOf(qc *quicgo.Conn) ([]byte, error) {
	state := qc.ConnectionState().TLS
	b, err := state.ExportKeyingMaterial(bindingLabel, nil, bindingSize)
	if err != nil {
		return nil, fmt.Errorf("bind a question to its connection: %w", err)
	}
	return b, nil
}

// JoinDial says where to ask, and who may answer.
type JoinDial struct {
	Addr        string            // HOST:PORT of a site
	Cluster     Cluster           // that the site must be of
	Fingerprint [sha256.Size]byte // of the certificate of that cluster's authority
	// Conn is the socket to ask from. Nil: one of its own.
	Conn net.PacketConn
	// Lookup is as in Config.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// JoinConn is a connection to a site that has proved to be of the cluster, for
// one question. One goroutine uses it.
type JoinConn struct {
	Site Site              // who answers
	CA   *x509.Certificate // the authority's certificate, of the fingerprint asked for

	qc        *quicgo.Conn
	transport *quicgo.Transport
	own       net.PacketConn // to close; nil where it was given
}

// DialJoin connects to the site at one of the addresses of d.Addr. The error is
// ErrOtherCluster where others answer.
func DialJoin(ctx context.Context, d JoinDial) (*JoinConn, error) {
	at, err := lookup(ctx, d.Addr, d.Lookup)
	if err != nil {
		return nil, err
	}
	j := &JoinConn{transport: &quicgo.Transport{Conn: d.Conn}}
	if d.Conn == nil {
		if j.own, err = net.ListenPacket("udp", ":0"); err != nil {
			return nil, fmt.Errorf("make a socket: %w", err)
		}
		j.transport.Conn = j.own
	}
	for _, udp := range at {
		if err = j.dial(ctx, udp, d); err == nil {
			return j, nil
		}
	}
	return nil, errors.Join(err, j.Close())
}

func (j *JoinConn) dial(ctx context.Context, udp *net.UDPAddr, d JoinDial) error {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{JoinALPN},
		InsecureSkipVerify: true, // VerifyConnection judges, by the fingerprint
		VerifyConnection: func(state tls.ConnectionState) error {
			var err error
			j.Site, j.CA, err = verifyJoin(state.PeerCertificates, d)
			return err
		},
	}
	ctx, cancel := context.WithTimeout(ctx, 2*helloTimeout)
	defer cancel()
	qc, err := j.transport.Dial(ctx, udp, config, joinQUIC())
	if err != nil {
		return fmt.Errorf("dial %s: %w", udp, err)
	}
	j.qc = qc
	return nil
}

func joinQUIC() *quicgo.Config {
	return &quicgo.Config{
		HandshakeIdleTimeout: helloTimeout,
		MaxIdleTimeout:       joinTimeout,
		KeepAlivePeriod:      10 * time.Second,
		InitialPacketSize:    1200,
	}
}

// verifyJoin judges who answers: its authority has the fingerprint and is of
// the cluster, and has signed its certificate.
func verifyJoin(chain []*x509.Certificate, d JoinDial) (Site, *x509.Certificate, error) {
	if len(chain) != 2 || sha256.Sum256(chain[1].Raw) != d.Fingerprint {
		return Site{}, nil, ErrOtherCluster
	}
	site, err := verify(chain[:1], chain[1])
	if err != nil {
		return Site{}, nil, fmt.Errorf("%w: %w", ErrOtherCluster, err)
	}
	if site.Cluster != d.Cluster {
		return Site{}, nil, fmt.Errorf("%w: it is of cluster %s", ErrOtherCluster, site.Cluster)
	}
	return site, chain[1], nil
}

// Binding returns 32 bytes that are this connection's alone; the answering end
// has the same (JoinRequest). What is signed together with it is of no use on
// any other connection.
func (j *JoinConn) Binding() ([]byte, error) { return bindingOf(j.qc) }

// Ask asks the one question, of at most MaxJoin bytes, and returns the answer.
func (j *JoinConn) Ask(ctx context.Context, question []byte) ([]byte, error) {
	qs, err := j.qc.OpenStreamSync(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask to join: %w", err)
	}
	st := &Stream{qs: qs, conn: j.qc}
	defer st.Close()
	deadline := time.Now().Add(joinTimeout + helloTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := st.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("ask to join: %w", err)
	}
	defer context.AfterFunc(ctx, func() { st.abort(streamDone) })()
	if err := WriteFrame(st, question); err != nil {
		return nil, fmt.Errorf("ask to join: %w", err)
	}
	return ReadFrame(st, MaxJoin)
}

// Close ends the connection, and the socket unless it was given.
func (j *JoinConn) Close() error {
	if j.qc != nil {
		_ = j.qc.CloseWithError(connClosed, "")
	}
	err := j.transport.Close()
	if j.own != nil {
		err = errors.Join(err, j.own.Close())
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the socket: %w", err)
	}
	return nil
}
