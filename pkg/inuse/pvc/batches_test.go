package pvc

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

func asks(n int) ask { return ask{types.UID(strconv.Itoa(n)), "ns/" + strconv.Itoa(n)} }

func claim(uid types.UID) Claim {
	return Claim{Namespace: "ns", Name: "data", UID: uid, Terminating: true, Protected: true}
}

// shown is the answer of a list with these pods.
func shown(ms int, pods ...Pod) answer { return answer{at: at(ms), pods: indexed(pods)} }

func TestListAnswersEarlierAsks(t *testing.T) {
	b := newBatches()
	if !b.join("ns", asks(1)) {
		t.Error("the first does not learn that nobody waits")
	}
	if b.join("ns", asks(2)) || b.join("ns", asks(1)) {
		t.Error("the second learns that nobody waits")
	}
	if !b.join("other", asks(9)) {
		t.Error("another namespace waits for the first")
	}
	asked, wait := b.take("ns", at(0))
	if len(asked) != 2 || wait != 0 {
		t.Fatalf("take = %v, %v, want two claims at once", asked, wait)
	}
	// This claim may have been deleted after the list was sent.
	if !b.join("ns", asks(3)) {
		t.Error("one that comes too late learns that somebody waits")
	}
	b.settle("ns", asked, shown(1))
	for uid, want := range map[types.UID]bool{"1": true, "2": true, "3": false, "9": false} {
		if got := b.reading(claim(uid), at(2)); got.Made != want {
			t.Errorf("claim %s: read %v, want %v", uid, got.Made, want)
		}
	}
}

func TestGapBetweenLists(t *testing.T) {
	cases := map[string]struct {
		at   []int // ms, of asks
		want []time.Duration
	}{
		"the first does not wait":                {[]int{0}, []time.Duration{0}},
		"the next waits for the rest of the gap": {[]int{0, 40}, []time.Duration{0, 60 * time.Millisecond}},
		"it grows while claims keep coming":      {[]int{0, 100, 150}, []time.Duration{0, 0, 150 * time.Millisecond}},
		"it starts anew after a time without claims": {[]int{0, 100, 1000, 1010},
			[]time.Duration{0, 0, 0, 90 * time.Millisecond}},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			b := newBatches()
			for i, ms := range c.at {
				b.join("ns", asks(i))
				if _, wait := b.take("ns", at(ms)); wait != c.want[i] {
					t.Errorf("ask %d waits %v, want %v", i, wait, c.want[i])
				}
			}
		})
	}
	slow := newBatches()
	slow.join("ns", asks(0))
	asked, _ := slow.take("ns", at(0))
	slow.join("ns", asks(1))
	slow.settle("ns", asked, shown(1000))
	if _, wait := slow.take("ns", at(1001)); wait != 99*time.Millisecond {
		t.Errorf("after a list that took a second the next waits %v", wait)
	}
	b := newBatches()
	if asked, wait := b.take("ns", at(0)); len(asked) != 0 || wait != 0 {
		t.Error("a list without a waiter")
	}
	b.join("ns", asks(0))
	b.take("ns", at(0))
	b.join("other", asks(1))
	b.take("other", at(60_000))
	if _, kept := b.pace["ns"]; kept {
		t.Error("the pace of a namespace that is at rest is kept for ever")
	}
}

// TestTenThousandClaimsTakeFewLists plays the deletion of 10,000 claims of one namespace at several speeds, with a loop
// that retries when it is told to.
func TestTenThousandClaimsTakeFewLists(t *testing.T) {
	const claims = 10_000
	for _, perSecond := range []int{50, 200, 1000, 100_000} {
		b, lists, answered := newBatches(), 0, 0
		for ms, joined := 0, 0; answered < claims; ms++ {
			for ; joined < claims && joined < 1+ms*perSecond/1000; joined++ {
				b.join("ns", asks(joined))
			}
			asked, wait := b.take("ns", at(ms))
			if wait > maxGap {
				t.Fatalf("a claim waits %v", wait)
			}
			if len(asked) > 0 {
				lists++
				answered += len(asked)
				b.settle("ns", asked, shown(ms))
			}
		}
		if lists > 50 {
			t.Errorf("%d a second: %d lists", perSecond, lists)
		}
	}
}

func TestReading(t *testing.T) {
	uses := Pod{Namespace: "ns", Name: "web-0", Scheduled: true, Claims: []string{"data"}}
	failed := errors.New("forbidden")
	read := func(a answer, ms int) Reading {
		b := newBatches()
		b.join("ns", ask{"1", "ns/data"})
		asked, _ := b.take("ns", at(0))
		b.settle("ns", asked, a)
		return b.reading(claim("1"), at(ms))
	}
	if got := read(shown(1, uses), 2); got != (Reading{Made: true, Usage: Usage{By: "web-0"}}) {
		t.Errorf("a pod that uses the claim: %+v", got)
	}
	if got := read(shown(1), 2); got != (Reading{Made: true}) {
		t.Errorf("no pods: %+v", got)
	}
	if got := read(answer{at: at(1), err: failed}, 2); !got.Made || got.Err == nil {
		t.Errorf("a list that failed: %+v", got)
	}
	if got := read(shown(1), 1+int(goodFor/time.Millisecond)+1); got != (Reading{}) {
		t.Errorf("a list that is too old: %+v", got)
	}

	b := newBatches()
	b.join("ns", ask{"1", "ns/data"})
	asked, _ := b.take("ns", at(0))
	b.settle("ns", asked, answer{err: failed})
	b.reading(claim("1"), at(1))
	if got := b.reading(claim("1"), at(2)); got != (Reading{}) {
		t.Errorf("a failure is reported twice, and nobody asks again: %+v", got)
	}
	b.join("ns", ask{"1", "ns/data"})
	asked, _ = b.take("ns", at(60_000))
	b.forget("1")
	b.settle("ns", asked, shown(60_000))
	if len(b.answers) != 0 {
		t.Errorf("%v is kept of what is gone", b.answers)
	}
	if got := b.reading(claim("1"), at(60_001)); got != (Reading{}) {
		t.Errorf("of one that is gone: %+v", got)
	}
	b.join("ns", ask{"1", "ns/data"})
	asked, _ = b.take("ns", at(120_000))
	b.settle("ns", asked, shown(120_000))
	b.join("ns", ask{"1", "ns/data"})
	if got := b.reading(claim("1"), at(120_001)); got != (Reading{}) {
		t.Errorf("an older answer counts for a newer question: %+v", got)
	}
}

// TestOldAnswersAreDropped: a claim that its other finalizers keep does not ask again, and its answer holds all pods.
func TestOldAnswersAreDropped(t *testing.T) {
	b := newBatches()
	list := func(ms int, claim ask) {
		t.Helper()
		b.join("ns", claim)
		asked, _ := b.take("ns", at(ms))
		b.settle("ns", asked, shown(ms))
	}
	list(0, asks(1))
	list(20_000, asks(2))
	b.join("other", asks(3))
	list(40_000, asks(4))
	if _, old := b.answers["1"]; old || len(b.answers) != 3 {
		t.Errorf("answers %v", b.answers)
	}
}
