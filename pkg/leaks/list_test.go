package leaks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// paging is a driver that answers with a function.
type paging func(*csi.ListVolumesRequest) (*csi.ListVolumesResponse, error)

func (p paging) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	return p(r)
}

func entry(handle string) *csi.ListVolumesResponse_Entry {
	return &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: handle, CapacityBytes: 1 << 30}}
}

func page(next string, handles ...string) *csi.ListVolumesResponse {
	p := &csi.ListVolumesResponse{NextToken: next}
	for _, handle := range handles {
		p.Entries = append(p.Entries, entry(handle))
	}
	return p
}

// expired returns the error for an expired token.
func expired() error { return errclass.Mark(errclass.InProgress, errors.New("ABORTED")) }

// book has the pages of a list by token.
type book map[string]*csi.ListVolumesResponse

// pages answers by token.
func pages(by book) paging {
	return func(r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
		if p := by[r.GetStartingToken()]; p != nil {
			return p, nil
		}
		return nil, expired()
	}
}

func (l listing) handles() (all []string) {
	for _, v := range l.volumes {
		all = append(all, v.Handle)
	}
	slices.Sort(all)
	return all
}

func TestList(t *testing.T) {
	for sentence, c := range map[string]struct {
		pages book
		want  []string
	}{
		"nothing":  {book{"": {}}, nil},
		"one page": {book{"": page("", "b", "a")}, []string{"a", "b"}},
		"pages that overlap": {book{"": page("1", "a", "b", "b"), "1": page("2", "b", "a"), "2": page("", "c", "a")},
			[]string{"a", "b", "c"}},
		"a page with nothing on it":     {book{"": page("1", "a"), "1": page("2"), "2": page("", "b")}, []string{"a", "b"}},
		"entries without an id":         {book{"": page("", "", "a")}, []string{"a"}},
		"one name in two spellings":     {book{"": page("", "Disk", "disk")}, []string{"disk"}},
		"entries of nothing at all":     {book{"": {Entries: []*csi.ListVolumesResponse_Entry{nil, {}}}}, nil},
		"a page that is larger than it": {book{"": page("", "a", "b", "c")}, []string{"a", "b", "c"}},
	} {
		got, err := list(t.Context(), pages(c.pages), 2, 1000)
		if err != nil || !slices.Equal(got.handles(), c.want) {
			t.Errorf("%s: %q, %v, want %q", sentence, got.handles(), err, c.want)
		}
	}
	got, err := list(t.Context(), pages(book{"": {Entries: []*csi.ListVolumesResponse_Entry{
		{Volume: &csi.Volume{VolumeId: "a", CapacityBytes: -1,
			AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"zone": "z"}}}},
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{"n"}}},
		{Volume: &csi.Volume{CapacityBytes: 1}},
	}}}), 2, 1000)
	if v := got.volumes["a"]; err != nil || v.Bytes != 0 || !slices.Equal(v.Nodes, []string{"n"}) ||
		len(v.Topology) != 1 || v.Topology[0]["zone"] != "z" || got.nameless != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestIncompleteLists(t *testing.T) {
	endless := 0
	for sentence, c := range map[string]struct {
		driver paging
		want   error
	}{
		"the driver fails": {func(*csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
			return nil, errors.New("broken")
		}, nil},
		"the first page is refused": {pages(nil), nil},
		"every token expires":       {pages(book{"": page("1", "a")}), errExpired},
		"a page leads to itself": {pages(book{"": page("1", "a"), "1": page("1", "b")}),
			errEndless},
		"pages lead in a circle": {pages(book{"": page("1", "a"), "1": page("2", "b"),
			"2": page("1", "c")}), errEndless},
		"new pages bring nothing new": {func(*csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
			endless++
			return page(strconv.Itoa(endless), "a"), nil
		}, errEndless},
		"there are more volumes than can be": {crowd(), errEndless},
	} {
		got, err := list(t.Context(), c.driver, 2, 1000)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || len(got.volumes) > 0 {
			t.Errorf("%s: %d volumes, %v, want %v", sentence, len(got.volumes), err, c.want)
		}
	}
}

// The driver is not called another hundred times.
func TestRepeatedTokenEndsList(t *testing.T) {
	circle, calls := pages(book{"": page("1", "a"), "1": page("2", "b"),
		"2": page("1", "c")}), 0
	_, err := list(t.Context(), paging(func(r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
		calls++
		return circle(r)
	}), 2, 1000)
	if !errors.Is(err, errEndless) || calls != 3 {
		t.Errorf("%v after %d calls, want 3", err, calls)
	}
}

// crowd is a driver with an endless list.
func crowd() paging {
	n := 0
	return func(*csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
		p := &csi.ListVolumesResponse{}
		for range 500 {
			n++
			p.Entries = append(p.Entries, entry(strconv.Itoa(n)))
		}
		p.NextToken = strconv.Itoa(n)
		return p, nil
	}
}

func TestListRestartsAfterExpiredToken(t *testing.T) {
	begun := 0
	driver := func(fails int) paging {
		begun = 0
		return func(r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
			switch {
			case r.GetStartingToken() == "":
				begun++
				return page("1", "of-try-"+strconv.Itoa(begun)), nil
			case begun <= fails:
				return nil, expired()
			}
			return page("", "last"), nil
		}
	}
	got, err := list(t.Context(), driver(listTries-1), 2, 1000)
	if want := []string{"last", "of-try-4"}; err != nil || begun != listTries || !slices.Equal(got.handles(), want) {
		t.Errorf("%q after %d tries, %v: want %q, for what was seen before does not count", got.handles(), begun, err, want)
	}
	if _, err = list(t.Context(), driver(listTries), 2, 1000); !errors.Is(err, errExpired) || begun != listTries {
		t.Errorf("%d tries, %v", begun, err)
	}
}

// chance returns a random source with a logged seed, which the environment variable SEED can set.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// unruly is a driver that pages by position, as real ones do, while volumes come and go before and behind. It repeats
// and reorders entries, and its tokens expire.
type unruly struct {
	dice *rand.Rand
	// stay are the volumes that exist throughout; ever are all volumes that ever existed.
	stay, ever map[string]bool
	there      []string
	calls, n   int
}

func newUnruly(dice *rand.Rand) *unruly {
	u := &unruly{dice: dice, stay: map[string]bool{}, ever: map[string]bool{}}
	for i := range 5 + dice.IntN(40) {
		handle := fmt.Sprintf("stays-%02d", i)
		u.stay[handle], u.ever[handle] = true, true
		u.there = append(u.there, handle)
	}
	return u
}

func (u *unruly) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	u.calls++
	u.stir()
	// The token names the next entry, so every permanent volume is listed despite insertions and deletions around it.
	at := 0
	if token := r.GetStartingToken(); token != "" {
		if u.dice.IntN(30) == 0 {
			return nil, expired()
		}
		at, _ = slices.BinarySearch(u.there, token[1+len("token-"):])
	}
	slices.Sort(u.there)
	end := min(len(u.there), at+1+u.dice.IntN(int(r.GetMaxEntries())))
	answer := page("", u.there[at:end]...)
	for range u.dice.IntN(3) {
		answer.Entries = append(answer.Entries, entry(u.there[u.dice.IntN(len(u.there))]))
	}
	u.dice.Shuffle(len(answer.Entries), func(i, j int) {
		answer.Entries[i], answer.Entries[j] = answer.Entries[j], answer.Entries[i]
	})
	if end < len(u.there) {
		// The prefix varies, so that no token repeats.
		answer.NextToken = string(rune('a'+u.calls%26)) + "token-" + u.there[end]
	}
	return answer, nil
}

// stir adds and removes volumes.
func (u *unruly) stir() {
	for range u.dice.IntN(3) {
		u.n++
		handle := fmt.Sprintf("%c-comes-%03d", 'a'+rune(u.dice.IntN(26)), u.n)
		u.ever[handle] = true
		u.there = append(u.there, handle)
	}
	for range u.dice.IntN(3) {
		at := u.dice.IntN(len(u.there))
		if !u.stay[u.there[at]] {
			u.there = slices.Delete(u.there, at, at+1)
		}
	}
	slices.Sort(u.there)
}

func TestListWhileVolumesChange(t *testing.T) {
	dice := chance(t)
	complete := 0
	for range 300 {
		driver := newUnruly(dice)
		got, err := list(t.Context(), driver, int32(1+dice.IntN(8)), 100_000)
		if driver.calls > 5000 {
			t.Fatalf("%d calls for %d volumes", driver.calls, len(driver.ever))
		}
		if err != nil {
			if !errors.Is(err, errExpired) && !errors.Is(err, errEndless) {
				t.Fatal(err)
			}
			continue
		}
		complete++
		for handle := range driver.stay {
			if _, listed := got.volumes[handle]; !listed {
				t.Errorf("%s was there all the time and is not listed", handle)
			}
		}
		for handle := range got.volumes {
			if !driver.ever[handle] {
				t.Errorf("%s is listed and never was", handle)
			}
		}
	}
	if complete < 100 {
		t.Errorf("%d lists were completed: this test shows little", complete)
	}
}
