package inflight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight/internal/chunks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// entryVersion is the version of an entry's bytes. A change that an earlier program would misread needs a new version.
const entryVersion = 1

// ownOnly ends the error about an entry that exceeds a limit of Locate.
const ownOnly = "which only the csi-reclaimer of this log reads"

// maxRequests is the maximum number of requests of an entry: the first one, and one for another node.
const maxRequests = 2

// The JSON form of an entry, version 1. Names are in the style of the Kubernetes API.
type (
	storedEntry struct {
		Version int         `json:"version"`
		Volume  string      `json:"volume"`
		Claim   storedClaim `json:"claim"`
		Begun   time.Time   `json:"begun"`
		Epoch   int64       `json:"epoch"`

		Discarding bool `json:"discarding,omitempty"`

		Requests []storedRequest `json:"requests"`

		size int // in bytes
	}
	storedClaim struct {
		Namespace string    `json:"namespace"`
		Name      string    `json:"name"`
		UID       types.UID `json:"uid"`
	}
	storedSource struct {
		Kind      volume.SourceKind `json:"kind"`
		Namespace string            `json:"namespace"`
		Name      string            `json:"name"`
		UID       types.UID         `json:"uid"`
	}
	storedRequest struct {
		Node          string               `json:"node,omitempty"`
		Create        json.RawMessage      `json:"create"` // protojson, without accessibility_requirements
		Accessibility *chunks.Requirement  `json:"accessibility,omitempty"`
		Secret        *v1.SecretReference  `json:"secret,omitempty"`
		Source        *storedSource        `json:"source,omitempty"`
		DriverVersion string               `json:"driverVersion,omitempty"`
		OtherVersions bool                 `json:"otherVersions,omitempty"`
		MayReschedule bool                 `json:"mayReschedule,omitempty"`
		PV            *v1.PersistentVolume `json:"persistentVolume"`
		Topology      bool                 `json:"topology,omitempty"`
		Migrated      bool                 `json:"migrated,omitempty"`
	}
)

// codec encodes and decodes the entries of a log.
type codec struct{ *chunks.Cache }

// newCodec returns the codec of a log whose chunks are in this Lease.
func newCodec(lease string) codec { return codec{chunks.New(lease)} }

// coded is an entry and its stored form.
type coded struct {
	entry *Entry // read-only
	value string // of its annotation
	// content is the number of bytes of an entry's value before compression.
	content int
	// refers has the values of the chunks that the entry refers to, by hash.
	refers map[string]string
}

// weight returns the bytes that it takes of its Lease's room: those of its value, or more if these are very few for its
// content. So the entries of a Lease have at most maxContent before compression.
func (c coded) weight() int { return max(len(c.value), c.content/inflation) }

// encode returns the stored form of an entry: one line of JSON, compressed if it is long, and chunks. The result
// includes the entry that decode returns for it, which shares no memory with e and has Begun truncated to seconds.
//
// The error wraps ErrInvalid for an entry that is incomplete, holds a secret, or differs from the decoded one.
func (c codec) encode(e *Entry) (coded, error) {
	whole := *e
	whole.Begun = e.Begun.UTC().Truncate(time.Second)
	value, refers, err := c.marshal(&whole)
	if err != nil {
		return coded{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	back, err := c.decode(value, nil, func(hash string) (string, bool) {
		chunk, found := refers[hash]
		return chunk, found
	})
	switch {
	case err != nil:
		return coded{}, fmt.Errorf("%w: it cannot be read back: %w", ErrInvalid, err)
	case !equal(&whole, back.entry):
		return coded{}, fmt.Errorf("%w: it is not the same when it is read back", ErrInvalid)
	}
	return back, nil
}

func (c codec) marshal(e *Entry) (value string, refers map[string]string, _ error) {
	if err := validate(e); err != nil {
		return "", nil, err
	}
	refers = map[string]string{}
	s := storedEntry{Version: entryVersion, Volume: e.Volume, Claim: storedClaim(e.Claim), Begun: e.Begun, Epoch: e.Epoch,
		Discarding: e.Discarding}
	for i := range e.Requests {
		r := &e.Requests[i]
		accessibility, err := c.Store(r.Create.GetAccessibilityRequirements(), refers)
		if err != nil {
			return "", nil, err
		}
		// The spaces in protojson's output differ between programs; encoding/json removes them below.
		create, err := protojson.Marshal(withoutTopologies(r.Create))
		if err != nil {
			return "", nil, err
		}
		s.Requests = append(s.Requests, storedRequest{
			Node: r.Node, Create: create, Accessibility: accessibility, Secret: r.Secret, Source: (*storedSource)(r.Source),
			DriverVersion: r.DriverVersion, OtherVersions: r.OtherVersions, MayReschedule: r.MayReschedule, PV: r.PV,
			Topology: r.Topology, Migrated: r.Migrated,
		})
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false) // it is not HTML, and shorter without
	if err := encoder.Encode(s); err != nil {
		return "", nil, err
	}
	return chunks.Compress(bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))), refers, nil
}

// withoutTopologies returns a copy of the request without topologies, which shares all other fields.
func withoutTopologies(r *csi.CreateVolumeRequest) *csi.CreateVolumeRequest {
	rest := &csi.CreateVolumeRequest{}
	from, to := r.ProtoReflect(), rest.ProtoReflect()
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Name() != "accessibility_requirements" {
			to.Set(field, value)
		}
		return true
	})
	to.SetUnknown(from.GetUnknown())
	return rest
}

// decode parses the entry from an annotation's value, with left as content takes it. chunk returns the value of a
// chunk by its hash. Unknown fields are an error, because the request would be another one without them.
func (c codec) decode(value string, left *int, chunk func(hash string) (string, bool)) (coded, error) {
	s, err := unmarshal(value, left)
	if err != nil {
		return coded{}, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	e := &Entry{Volume: s.Volume, Claim: volume.ClaimRef(s.Claim), Begun: s.Begun, Epoch: s.Epoch,
		Discarding: s.Discarding}
	refers := map[string]string{}
	for i := range s.Requests {
		request, err := c.request(&s.Requests[i], chunk, refers)
		if err != nil {
			return coded{}, fmt.Errorf("%w: request %d: %w", ErrDecode, i, err)
		}
		e.Requests = append(e.Requests, request)
	}
	if err := validate(e); err != nil {
		return coded{}, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	return coded{e, value, s.size, refers}, nil
}

func unmarshal(value string, left *int) (*storedEntry, error) {
	plain, err := content(value, left)
	if err != nil {
		return nil, err
	}
	if left != nil && text.Commas(plain) > maxValues {
		return nil, fmt.Errorf("it has more than %d values, %s", maxValues, ownOnly)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(plain, &version); err != nil {
		return nil, err
	}
	if version.Version != entryVersion {
		return nil, fmt.Errorf("%w: version %d", ErrVersion, version.Version)
	}
	s := &storedEntry{size: len(plain)}
	decoder := json.NewDecoder(bytes.NewReader(plain))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(s); err != nil {
		return nil, unknownIf(json.Unmarshal(plain, &storedEntry{}) == nil, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return s, nil
}

// unknownIf returns the error of a decoder, as ErrVersion if the only cause is a field that is not known here.
func unknownIf(unknownField bool, err error) error {
	if unknownField {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	return err
}

// content returns the decompressed value of an annotation, and takes its bytes from left, even if it fails. A nil left
// is for the values of the process' own log.
func content(value string, left *int) ([]byte, error) {
	if left == nil {
		return chunks.Content(value)
	}
	limit := *left
	text, err := chunks.Decompress(value, limit)
	*left = max(0, limit-len(text))
	if err == nil && len(text) > limit {
		err = fmt.Errorf("the entries up to it have more than %d bytes before compression, %s", maxContent, ownOnly)
	}
	return text, err
}

// hashesOf returns the hashes of the chunks that an entry's annotation refers to.
func hashesOf(value string) (hashes []string, _ error) {
	s, err := unmarshal(value, nil)
	if err != nil {
		return nil, err
	}
	for i := range s.Requests {
		if r := s.Requests[i].Accessibility; r != nil {
			hashes = append(hashes, r.Chunks...)
		}
	}
	return hashes, nil
}

// request decodes a stored request, and adds the chunks that it refers to to refers.
func (c codec) request(r *storedRequest, chunk func(hash string) (string, bool),
	refers map[string]string) (Request, error) {
	request := Request{
		Node: r.Node, Create: &csi.CreateVolumeRequest{}, Secret: r.Secret, Source: (*volume.SourceRef)(r.Source),
		DriverVersion: r.DriverVersion, OtherVersions: r.OtherVersions, MayReschedule: r.MayReschedule, PV: r.PV,
		Topology: r.Topology, Migrated: r.Migrated,
	}
	if err := protojson.Unmarshal(r.Create, request.Create); err != nil {
		lenient := protojson.UnmarshalOptions{DiscardUnknown: true}
		return Request{}, unknownIf(lenient.Unmarshal(r.Create, request.Create) == nil, err)
	}
	if r.Accessibility != nil {
		accessibility, err := c.Load(r.Accessibility, chunk, refers)
		if err != nil {
			return Request{}, err
		}
		request.Create.AccessibilityRequirements = accessibility
	}
	return request, nil
}

// validate returns an error if an entry is incomplete or inconsistent. Programs print the names of volume and claim, so
// both are names that the API server admits.
func validate(e *Entry) error {
	err := cmp.Or(validateName("volume name", e.Volume, validation.NameIsDNSSubdomain),
		validateName("namespace of the claim", e.Claim.Namespace, validation.ValidateNamespaceName),
		validateName("name of the claim", e.Claim.Name, validation.NameIsDNSSubdomain))
	switch {
	case err != nil:
		return err
	case e.Claim.UID == "":
		return errors.New("claim: the UID is required")
	case len(e.Requests) > maxRequests: // only another version writes more
		return fmt.Errorf("%w: %d requests", ErrVersion, len(e.Requests))
	case len(e.Requests) == 0:
		return errors.New("0 requests")
	}
	for i := range e.Requests {
		if err := validateRequest(&e.Requests[i], e.Volume); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return nil
}

func validateName(what, name string, problemsOf validation.ValidateNameFunc) error {
	if problems := problemsOf(name, false); len(problems) > 0 {
		return fmt.Errorf("%s %q: %s", what, name, problems[0])
	}
	return nil
}

func validateRequest(r *Request, volume string) error {
	switch {
	case r.Create == nil || r.PV == nil:
		return errors.New("the request or the PersistentVolume is missing")
	case len(r.Create.GetSecrets()) > 0:
		return errors.New("it holds secrets")
	case r.Create.GetName() != volume:
		return fmt.Errorf("it is for volume %q", r.Create.GetName())
	case r.PV.Name != volume:
		return fmt.Errorf("its PersistentVolume is %q", r.PV.Name)
	case r.Source != nil && (r.Source.Kind == "" || r.Source.Namespace == "" || r.Source.Name == "" || r.Source.UID == ""):
		return errors.New("kind, namespace, name and UID of the source are required")
	}
	return nil
}

// equal compares two entries as the driver and the API server see them: an empty list or map equals a missing one.
func equal(a, b *Entry) bool {
	if a.Volume != b.Volume || a.Claim != b.Claim || !a.Begun.Equal(b.Begun) || a.Epoch != b.Epoch ||
		a.Discarding != b.Discarding ||
		len(a.Requests) != len(b.Requests) {
		return false
	}
	for i := range a.Requests {
		x, y := a.Requests[i], b.Requests[i]
		if !chunks.Same(x.Create.GetAccessibilityRequirements(), y.Create.GetAccessibilityRequirements()) ||
			!proto.Equal(withoutTopologies(x.Create), withoutTopologies(y.Create)) {
			return false
		}
		x.Create, y.Create = nil, nil
		if !equality.Semantic.DeepEqual(x, y) {
			return false
		}
	}
	return true
}
