package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
)

// past asks a site's local API.
func (s *testSite) past(method, target, body string, into any) *httptest.ResponseRecorder {
	s.w.t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, target, nil)
	if body != "" {
		r = httptest.NewRequest(method, target, strings.NewReader(body))
	}
	s.api.ServeHTTP(w, r)
	if into != nil && w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			s.w.t.Fatal(err)
		}
	}
	return w
}

// Sites, an observer among them, show each epoch as it was, each by its own database, and still after a start.
func TestPast(t *testing.T) {
	inWorld(t, []string{"a", "b", "c", "ob"}, func(w *world) {
		a := w.sites[0]
		set := func(key, value string) {
			t.Helper()
			method := http.MethodPut
			if value == "" {
				method = http.MethodDelete
			}
			if r := a.past(method, kvPath+key, value, nil); r.Code != http.StatusOK {
				t.Fatalf("%s %s: %s", method, key, r.Body)
			}
		}
		var times []time.Time
		epoch := func() {
			time.Sleep(15 * time.Second)
			times = append(times, time.Now())
			time.Sleep(15 * time.Second)
		}
		set("k/1", "one")
		set("k/2", "two")
		epoch()
		set("k/1", "uno")
		set("k/2", "")
		set("k/3", "three")
		epoch()
		set("k/1", "eins")
		time.Sleep(time.Second)

		for _, s := range []*testSite{a, w.sites[3]} {
			s.mustShowPast(times)
		}
		a.kill()
		a.restart()
		w.await(func() bool { return w.connected(3) })
		a.mustShowPast(times)
	})
}

// mustShowPast looks at what TestPast has made of two epochs and of what came after them.
func (s *testSite) mustShowPast(times []time.Time) {
	t := s.w.t
	t.Helper()
	var numbers []uint64
	for i, want := range []map[string]string{{"k/1": "one", "k/2": "two"}, {"k/1": "uno", "k/3": "three"}} {
		var e client.Epochs
		s.past("GET", epochsPath+"?at="+times[i].UTC().Format(time.RFC3339Nano), "", &e)
		if len(e.Epochs) != 1 {
			t.Fatalf("%s: there is no epoch at %v", s.name, times[i])
		}
		numbers = append(numbers, e.Epochs[0].Number)
		var p client.Page
		s.past("GET", fmt.Sprintf("%s?prefix=k/&epoch=%d", listPath, numbers[i]), "", &p)
		if len(p.Entries) != len(want) || p.Next != "" {
			t.Errorf("%s: epoch %d has %+v", s.name, i, p)
		}
		for _, k := range []string{"k/1", "k/2", "k/3"} {
			r := s.past("GET", fmt.Sprintf("%s%s?epoch=%d", kvPath, k, numbers[i]), "", nil)
			if want[k] == "" && r.Code != http.StatusNotFound || want[k] != "" && r.Body.String() != want[k] {
				t.Errorf("%s: in epoch %d %s is %d %s", s.name, i, k, r.Code, r.Body)
			}
		}
	}
	var h client.History
	s.past("GET", historyPath+"k/1", "", &h)
	if len(h.Versions) != 3 || h.Versions[1].Epoch != numbers[1] || h.Versions[2].Epoch != numbers[0] || h.Next != 0 {
		t.Fatalf("%s: the history is %+v, epochs %v", s.name, h, numbers)
	}
	for i, want := range []string{"eins", "uno", "one"} {
		v := h.Versions[i]
		if r := s.past("GET", kvPath+"k/1?version="+string(v.Version), "", nil); r.Body.String() != want || v.Size != len(want) || v.Writer != "a" {
			t.Errorf("%s: version %d is %s %+v", s.name, i, r.Body, v)
		}
	}
	var short client.History
	s.past("GET", historyPath+"k/1?limit=1&before="+fmt.Sprint(numbers[1]), "", &short)
	if len(short.Versions) != 1 || short.Versions[0] != h.Versions[2] || short.Next != numbers[0] {
		t.Errorf("%s: a page of the history is %+v", s.name, short)
	}
	for target, status := range map[string]int{
		kvPath + "k/1?epoch=1":          http.StatusNotFound,
		kvPath + "k/1?epoch=0":          http.StatusBadRequest,
		kvPath + "k/1?epoch=1&locall=t": http.StatusBadRequest,
		kvPath + "k/1?version=7.1":      http.StatusNotFound,
		kvPath + "k/1?version=x":        http.StatusBadRequest,
		listPath + "?epoch=1":           http.StatusNotFound,
		listPath + "?epoch=":            http.StatusBadRequest,
		epochsPath + "?at=noon":         http.StatusBadRequest,
		epochsPath + "?limit=0":         http.StatusBadRequest,
	} {
		if r := s.past("GET", target, "", nil); r.Code != status {
			t.Errorf("%s: %s is %d %s", s.name, target, r.Code, r.Body)
		}
	}
}
