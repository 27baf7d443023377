package leaks

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// Driver lists the volumes of a storage system; csidriver.Driver implements it. Its errors carry an errclass.Class,
// which is InProgress for an expired token.
type Driver interface {
	ListVolumes(ctx context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error)
}

// Bounds of one list, beyond which the driver's paging is considered endless.
const (
	// listTries bounds the number of times that a list is begun, if its tokens expire.
	listTries = 4
	// maxIdlePages bounds the number of consecutive pages without a new volume.
	maxIdlePages = 100
	// maxVolumes bounds the number of volumes, which take about 300 bytes of memory each.
	maxVolumes = 1_000_000
)

var (
	// errExpired: the driver no longer accepts a token that it returned.
	errExpired = errors.New("the driver does not know its own token any more")
	// errEndless: the driver's list exceeds one of these bounds, or repeats a token.
	errEndless = errors.New("the driver's pages come to no end")
)

// Volume is a volume as the driver's ListVolumes reports it.
type Volume struct {
	// Handle is the volume_id, as in spec.csi.volumeHandle of a PV.
	Handle string
	// Bytes is the size, or 0 if the driver does not report it.
	Bytes int64
	// Nodes are the nodes to which the driver reports the volume as attached, which few drivers do.
	Nodes []string
	// Topology holds the segments from which the volume is accessible; empty means every node, or not reported.
	Topology []map[string]string
}

// listing is a complete list of the driver's volumes, without duplicates.
type listing struct {
	// volumes are keyed by their handles in lower case, see keyOf.
	volumes map[string]Volume
	// nameless counts entries without a volume_id, which cannot be checked.
	nameless int
}

// list returns all volumes of the driver, in pages of at most pageSize (0: the driver chooses), and fails if the list
// has more than most volumes. However the pages overlap or are sorted, the result contains every volume that exists
// during the whole call; volumes created or deleted during the call may be included or not. An error means that the
// list is incomplete and unusable.
//
// After an expired token the list begins again (CSI spec, "ListVolumes Errors"). Earlier pages are dropped, because
// their volumes may be gone.
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

// add adds the volumes of a page, and returns the number of volumes afterwards.
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
