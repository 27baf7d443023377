package oracle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// AuditPolicy is the policy (audit.k8s.io/v1) that the API server must log by: every answer to a write of a PV, claim,
// VolumeAttachment or Lease in full, and the metadata of all that the service accounts of tests ask.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - resources: [persistentvolumes, persistentvolumes/status, persistentvolumeclaims, persistentvolumeclaims/status]
  - group: storage.k8s.io
    resources: [volumeattachments, volumeattachments/status]
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// Span is a time with a beginning and an end.
type Span struct{ From, To time.Time }

func (s Span) overlaps(o Span) bool { return !s.To.Before(o.From) && !o.To.Before(s.From) }

// Request is a request that the API server answered.
type Request struct {
	// Span is from its arrival to its answer.
	Span
	User, Verb, Resource, Namespace, Name string
	Code                                  int
	// Object is the object in the answer to a write, nil for reads, errors and other kinds.
	Object *Object
}

func (r Request) write() bool {
	return r.Verb == "create" || r.Verb == "update" || r.Verb == "patch" || r.Verb == "delete"
}

// ReadAudit returns the requests of the audit log at path whose lines contain text, in order of arrival. An incomplete
// last line is omitted.
func ReadAudit(path, text string) ([]Request, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	var requests []Request
	lines := bufio.NewReaderSize(file, 1<<16)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			sortByTime(requests)
			return requests, nil
		case err != nil:
			return nil, fmt.Errorf("read audit log: %w", err)
		case !bytes.Contains(line, []byte(text)):
			continue
		}
		request, err := decode(line)
		if err != nil {
			return nil, fmt.Errorf("read audit log: line %d: %w", number, err)
		}
		requests = append(requests, request)
	}
}

func decode(line []byte) (Request, error) {
	var raw struct {
		Verb string
		User struct{ Username string }

		ObjectRef                                struct{ Resource, Subresource, Namespace, Name string }
		ResponseStatus                           struct{ Code int }
		ResponseObject                           json.RawMessage
		RequestReceivedTimestamp, StageTimestamp time.Time
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return Request{}, err
	}
	r := Request{
		Span: Span{raw.RequestReceivedTimestamp, raw.StageTimestamp}, User: raw.User.Username, Verb: raw.Verb,
		Resource: raw.ObjectRef.Resource, Namespace: raw.ObjectRef.Namespace, Name: raw.ObjectRef.Name,
		Code: raw.ResponseStatus.Code,
	}
	if raw.ObjectRef.Subresource != "" {
		r.Resource += "/" + raw.ObjectRef.Subresource
	}
	if len(raw.ResponseObject) == 0 || r.Code >= 300 || !r.write() {
		return r, nil
	}
	object, err := decodeObject(strings.TrimSuffix(r.Resource, "/status"), raw.ResponseObject)
	if err != nil {
		return Request{}, err
	}
	r.Object = object
	if r.Name == "" && object != nil {
		r.Name = object.Name
	}
	return r, nil
}

// decodeObject decodes the answer to a write. A deletion's answer may be a Status that holds only the UID.
func decodeObject(resource string, data []byte) (*Object, error) {
	var status struct {
		Kind    string
		Details struct{ Name, UID string }
	}
	if err := json.Unmarshal(data, &status); err != nil {
		return nil, err
	}
	var o Object
	var err error
	switch resource {
	case "persistentvolumes":
		var pv v1.PersistentVolume
		err = json.Unmarshal(data, &pv)
		o = OfPV(&pv)
	case "persistentvolumeclaims":
		var claim v1.PersistentVolumeClaim
		err = json.Unmarshal(data, &claim)
		o = OfClaim(&claim)
	case "volumeattachments":
		var attachment storagev1.VolumeAttachment
		err = json.Unmarshal(data, &attachment)
		o = OfAttachment(&attachment)
	case "leases":
		var lease coordinationv1.Lease
		err = json.Unmarshal(data, &lease)
		var is bool
		if o, is = OfLease(&lease); !is {
			return nil, err
		}
	default:
		return nil, nil
	}
	if status.Kind == "Status" {
		o = Object{Kind: o.Kind, Name: status.Details.Name, UID: status.Details.UID}
	}
	return &o, err
}
