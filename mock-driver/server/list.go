package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// pageOf validates the common fields of list requests and parses the token.
func pageOf(list string, r interface {
	GetMaxEntries() int32
	GetStartingToken() string
}) (from string, limit int, err error) {
	if r.GetMaxEntries() < 0 {
		return "", 0, invalid("max_entries %d is negative", r.GetMaxEntries())
	}
	from, err = after(list, r.GetStartingToken())
	return from, int(r.GetMaxEntries()), err
}

func (c *controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	from, limit, err := pageOf(volumeList, r)
	if err != nil {
		return nil, err
	}
	page, more := c.backend.Volumes(from, limit)
	answer := &csi.ListVolumesResponse{}
	for _, v := range page {
		status := &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: c.publishedNodes(v)}
		c.addCondition(status, v, ControllerCondition)
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{Volume: toVolume(v), Status: status})
	}
	if more {
		answer.NextToken = token(volumeList, page[len(page)-1].ID)
	}
	return answer, nil
}

func (c *controller) ControllerGetVolume(_ context.Context,
	r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	v, err := c.backend.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	status := &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: c.publishedNodes(v)}
	c.addCondition(status, v, ControllerCondition)
	return &csi.ControllerGetVolumeResponse{Volume: toVolume(v), Status: status}, nil
}

func (c *controller) publishedNodes(v backend.Volume) []string {
	if !c.can(ListPublishedNodes) {
		return nil
	}
	return v.Nodes()
}

// Kinds of lists. A list accepts only its own tokens and tokens for anyList.
const (
	volumeList   = "volumes"
	snapshotList = "snapshots"
	healthList   = "health"
	anyList      = "any"
)

// token returns a token for the page after an id. It is self-contained, so it survives a restart, and has a checksum,
// so that an arbitrary text is not a valid token.
func token(list, after string) string {
	text := list + " " + after
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08x %s", crc32.ChecksumIEEE([]byte(text)), text))
}

// FirstPageToken returns a token for the first page of any list, equivalent to an empty token.
func FirstPageToken() string { return token(anyList, "") }

// after returns the id in a token, and "" for the empty token. Any token that this driver did not create yields
// Aborted, as the specification requires.
func after(list, t string) (string, error) {
	if t == "" {
		return "", nil
	}
	data, err := base64.RawURLEncoding.DecodeString(t)
	if err == nil {
		_, text, _ := strings.Cut(string(data), " ")
		kind, id, ok := strings.Cut(text, " ")
		// Compare the whole text, because base64 can encode the same bytes in several ways.
		if ok && (kind == list || kind == anyList) && t == token(kind, id) {
			return id, nil
		}
	}
	return "", status.Error(codes.Aborted, "unknown starting_token: begin again without one")
}
