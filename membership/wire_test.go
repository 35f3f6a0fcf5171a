package membership

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gus/quic"
)

// What WIRE.md says of this package's part is what the code does.
func TestTheWireDocument(t *testing.T) {
	b, err := os.ReadFile("../quic/WIRE.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, line := range []string{
		fmt.Sprintf("| %d | gossip |", PurposeGossip),
		fmt.Sprintf("| %d | admission |", PurposeAdmission),
		fmt.Sprintf("has the address %s:%d:", nowhere, nowherePort),
		fmt.Sprintf("at most %d bytes; unknown keys", maxMeta),
		fmt.Sprintf("HOST:PORT, %d bytes at most", maxAddress),
		fmt.Sprintf("of the program, %d bytes at most", maxVersion),
		fmt.Sprintf("is one byte, %d, and text", noticeTwin),
		fmt.Sprintf("A **token** is `%s`", tokenPrefix),
		fmt.Sprintf("addresses: 1 to %d texts, secret: %d bytes", maxTokenAddrs, tokenSecret),
		fmt.Sprintf("the first %d bytes of that's", tokenChecksum),
		"`" + strings.TrimSuffix(siteSignsAs, "\x00") + "` and `" + strings.TrimSuffix(tokenSignsAs, "\x00") + "`",
		"`" + strings.TrimSuffix(tokenKeyMadeFrom, "\x00") + "`",
		fmt.Sprintf("in words, at most %d bytes", maxReason),
		fmt.Sprintf("at most %d peers", maxAnswerPeers),
		fmt.Sprintf("%d failures a minute", maxFailures),
		fmt.Sprintf("ALPN `%s`", quic.JoinALPN),
		fmt.Sprintf("too many tokens are valid: %d", maxTokens),
		fmt.Sprintf("once it is and then each %v", short(inquireInterval)),
		fmt.Sprintf("one frame each way within %v", short(inquireTimeout)),
		fmt.Sprintf("of at most %s bytes, is a CBOR map", thousands(maxNews)),
		fmt.Sprintf("| 13 | %s observers have joined", thousands(maxObservers)),
	} {
		if !strings.Contains(doc, line) {
			t.Errorf("WIRE.md does not say %q", line)
		}
	}
	_, table, _ := strings.Cut(doc, "| code | |")
	for c := range codes {
		if !strings.Contains(table, fmt.Sprintf("\n| %d | ", c)) {
			t.Errorf("WIRE.md has no answer %d", c)
		}
	}
}

// short and thousands are as the document writes durations and numbers.
func short(d time.Duration) string { return fmt.Sprintf("%d s", d/time.Second) }
func thousands(n int) string       { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
