package main

import (
	"errors"
	"strings"
	"sync"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/serve"
)

// health is what the health endpoints tell, from the moment the port is open. It is safe
// for concurrent use.
type health struct {
	mu     sync.Mutex
	synced func() bool
	// provisions tells whether the caches of provisioning are filled, nil where nothing provisions.
	// They do not count while it limps: it may not read what it has to.
	provisions func() bool
	limps      bool
	lease      serve.Check
	// lacks is what keeps all deletions from being made, empty if nothing does.
	lacks []string
}

func (h *health) set(synced func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced = synced
}

func (h *health) provisioning(synced func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.provisions = synced
}

func (h *health) limp(limps bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limps = limps
}

func (h *health) watch(lease serve.Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = lease
}

func (h *health) lack(what ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lacks = what
}

// alive is an error when only a restart helps. A driver that is away is no such thing.
func (h *health) alive() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease == nil {
		return nil
	}
	return h.lease()
}

// ready is an error until the driver was there and the caches are filled, and while
// something is lacking without which no deletion is safe.
func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.lacks) > 0:
		return errors.New(strings.Join(h.lacks, "\n"))
	case h.synced == nil:
		return errors.New("waiting for the CSI driver")
	case !h.synced(), h.provisions != nil && !h.limps && !h.provisions():
		return errors.New("waiting for the first list from the API server")
	}
	return nil
}
