package leaks

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// Driver lists the volumes of a storage system; csidriver.Driver is one. Its errors are marked with an
// errclass.Class; for a token that expired it is InProgress.
type Driver interface {
	ListVolumes(ctx context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error)
}

// Bounds of one list, beyond which a driver is taken to page without end.
const (
	// listTries is how often a list is begun, when its tokens expire.
	listTries = 4
	// maxIdlePages is how many pages in a row may bring nothing new.
	maxIdlePages = 100
	// maxVolumes is how many volumes are taken in, at about 300 bytes each.
	maxVolumes = 1_000_000
)

var (
	// errExpired: the driver does not know a token any more that it gave out.
	errExpired = errors.New("the driver does not know its own token any more")
	// errEndless: the driver's pages do not come to an end.
	errEndless = errors.New("the driver's pages come to no end")
)

// Volume is a volume that the driver lists.
type Volume struct {
	// Handle is its volume_id, as in spec.csi.volumeHandle of a PV.
	Handle string
	// Bytes is its size, 0 if the driver does not report it.
	Bytes int64
	// Nodes are those to which the driver reports it as attached. Few drivers do.
	Nodes []string
	// Topology is from where it can be used. Empty: from everywhere, or the driver does not report it.
	Topology []map[string]string
}

// listing is what the driver has, each volume once.
type listing struct {
	// volumes are by the key of their handle.
	volumes map[string]Volume
	// nameless counts entries without a volume_id, of which nothing can be said.
	nameless int
}

// list asks the driver for all its volumes, by pages of at most so many (0 leaves that to the driver), and takes
// in at most so many volumes. What is there from the beginning to the end is in the answer, however the pages
// overlap or are ordered; what comes or goes meanwhile may be. An error means that the list is not complete,
// and nothing may be taken from it.
//
// The specification has a caller begin anew where a token has expired (CSI spec, "ListVolumes Errors"). What
// was seen before does not count then: it may be gone since.
func list(ctx context.Context, driver Driver, pageSize int32, most int) (listing, error) {
	var err error
	for range listTries {
		var l listing
		if l, err = listOnce(ctx, driver, pageSize, most); !errors.Is(err, errExpired) {
			return l, err
		}
	}
	return listing{}, fmt.Errorf("list volumes, begun %d times: %w", listTries, err)
}

func listOnce(ctx context.Context, driver Driver, pageSize int32, most int) (listing, error) {
	l := listing{volumes: map[string]Volume{}}
	request := &csi.ListVolumesRequest{MaxEntries: pageSize}
	given := map[string]bool{}
	for idle := 0; idle < maxIdlePages; idle++ {
		page, err := driver.ListVolumes(ctx, request)
		switch {
		case err != nil && request.GetStartingToken() != "" && errclass.Of(err) == errclass.InProgress:
			return listing{}, fmt.Errorf("%w: %w", errExpired, err)
		case err != nil:
			return listing{}, err
		}
		if before := len(l.volumes); l.add(page.GetEntries()) > before {
			idle = -1
		}
		token := page.GetNextToken()
		switch {
		case token == "":
			return l, nil
		case given[token]:
			return listing{}, fmt.Errorf("list volumes: %w: a token was returned twice", errEndless)
		case len(l.volumes) > most:
			return listing{}, fmt.Errorf("list volumes: %w: there are more than %d volumes", errEndless, most)
		}
		given[token] = true
		request = &csi.ListVolumesRequest{MaxEntries: pageSize, StartingToken: token}
	}
	return listing{}, fmt.Errorf("list volumes: %w: %d pages in a row have no new volume", errEndless, maxIdlePages)
}

// add takes the volumes of a page in, and returns how many there are then.
func (l *listing) add(entries []*csi.ListVolumesResponse_Entry) int {
	for _, entry := range entries {
		v := Volume{Handle: entry.GetVolume().GetVolumeId(), Bytes: max(0, entry.GetVolume().GetCapacityBytes()),
			Nodes: entry.GetStatus().GetPublishedNodeIds()}
		if v.Handle == "" {
			l.nameless++
			continue
		}
		for _, place := range entry.GetVolume().GetAccessibleTopology() {
			v.Topology = append(v.Topology, place.GetSegments())
		}
		l.volumes[keyOf(v.Handle)] = v
	}
	return len(l.volumes)
}
