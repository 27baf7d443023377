//go:build unix

package controlplane

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// AuditEvent is one request to the API server, as its audit log has it (audit.k8s.io/v1).
type AuditEvent struct {
	// ID is the request's own.
	ID string
	// Stage is ResponseComplete, ResponseStarted for a watch, or Panic.
	Stage string

	Verb string
	// User and Groups are those as whom it was made, where the client impersonates others.
	User      string
	Groups    []string
	UserAgent string
	URI       string

	// The request's target; empty for non-resource URLs. Name may be empty for an object that is being created.
	APIGroup, Resource, Subresource, Namespace, Name string

	// Code is the HTTP status of the answer, 0 without an answer.
	Code int
	// Received and Answered are the times of the request and of its stage.
	Received, Answered time.Time
}

// AuditLog is the path of the audit log. It exists once the API server has logged a request, and only with
// Options.AuditLog.
func (cp *ControlPlane) AuditLog() string { return cp.folder.file("audit.log") }

// AuditEvents returns the requests that keep chooses, all for a nil keep, in the order in which they were logged.
// See [ReadAuditLog].
//
// All requests are logged except for reads and leases of the components and nodes themselves. A request's
// event is written while its answer is being sent: a client may have the answer a moment before the log has the event.
func (cp *ControlPlane) AuditEvents(keep func(AuditEvent) bool) ([]AuditEvent, error) {
	return cp.auditEvents("", keep)
}

// AuditEventsOf returns the requests of one user that keep chooses, as AuditEvents does; a log of many users is
// read much faster so.
func (cp *ControlPlane) AuditEventsOf(user string, keep func(AuditEvent) bool) ([]AuditEvent, error) {
	return cp.auditEvents(user, func(e AuditEvent) bool { return e.User == user && (keep == nil || keep(e)) })
}

// auditEvents reads on from where the log was left when it was last read for the text.
func (cp *ControlPlane) auditEvents(text string, keep func(AuditEvent) bool) ([]AuditEvent, error) {
	if !cp.options.AuditLog {
		return nil, errors.New("read audit log: Options.AuditLog is not set")
	}
	cp.audit.mu.Lock()
	defer cp.audit.mu.Unlock()
	if cp.audit.of == nil {
		cp.audit.of = map[string]*auditTail{}
	}
	tail, found := cp.audit.of[text]
	if !found {
		tail = newAuditTail(cp.AuditLog(), text)
		cp.audit.of[text] = tail
	}
	if err := tail.read(); err != nil {
		return nil, err
	}
	return tail.chosen(keep), nil
}

// auditTails are the parts of the audit log that were read, by the text that their lines contain.
type auditTails struct {
	mu sync.Mutex
	of map[string]*auditTail
}

// ReadAuditLog reads the audit log at path. Each request appears once, with the first of its stages
// that was logged: a watch when it began, everything else when it was answered. A last line that is still being
// written is left for the next reading.
func ReadAuditLog(path string, keep func(AuditEvent) bool) ([]AuditEvent, error) {
	tail := newAuditTail(path, "")
	if err := tail.read(); err != nil {
		return nil, err
	}
	return tail.chosen(keep), nil
}

// auditTail holds the requests read so far from the audit log's lines that contain a text.
type auditTail struct {
	path   string
	text   []byte
	offset int64
	lines  int
	seen   map[string]bool
	events []AuditEvent
}

func newAuditTail(path, text string) *auditTail {
	return &auditTail{path: path, text: []byte(text), seen: map[string]bool{}}
}

// chosen returns the requests that keep chooses.
func (a *auditTail) chosen(keep func(AuditEvent) bool) (events []AuditEvent) {
	for _, e := range a.events {
		if keep == nil || keep(e) {
			events = append(events, e)
		}
	}
	return events
}

// read reads on to the end of the log.
func (a *auditTail) read() error {
	file, err := os.Open(a.path)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	for lines := bufio.NewReaderSize(file, 64<<10); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = a.take(line)
		}
		if err != nil {
			return fmt.Errorf("read audit log: line %d: %w", a.lines+1, err)
		}
		a.offset += int64(len(line))
		a.lines++
	}
}

// take keeps the request of a whole line, unless it is known.
func (a *auditTail) take(line []byte) error {
	if !bytes.Contains(line, a.text) {
		return nil
	}
	event, err := decodeAuditLine(line)
	if err != nil || a.seen[event.ID] {
		return err
	}
	a.seen[event.ID] = true
	a.events = append(a.events, event)
	return nil
}

// auditLineStart begins each event. An API server that was killed while it wrote one leaves a part of it, which the
// first line of the next run then continues.
var auditLineStart = []byte(`{"kind":"Event"`)

func decodeAuditLine(line []byte) (AuditEvent, error) {
	var raw struct {
		AuditID    string
		Stage      string
		RequestURI string
		Verb       string
		// The authenticated and the impersonated user.
		User, ImpersonatedUser struct {
			Username string
			Groups   []string
		}
		UserAgent string
		ObjectRef struct {
			APIGroup, Resource, Subresource, Namespace, Name string
		}
		ResponseStatus struct {
			Code int
		}
		RequestReceivedTimestamp, StageTimestamp time.Time
	}
	if whole := bytes.LastIndex(line, auditLineStart); whole > 0 && !json.Valid(line) {
		line = line[whole:]
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return AuditEvent{}, err
	}
	if raw.ImpersonatedUser.Username != "" {
		raw.User = raw.ImpersonatedUser
	}
	return AuditEvent{
		ID: raw.AuditID, Stage: raw.Stage,
		Verb: raw.Verb, User: raw.User.Username, Groups: raw.User.Groups, UserAgent: raw.UserAgent, URI: raw.RequestURI,
		APIGroup: raw.ObjectRef.APIGroup, Resource: raw.ObjectRef.Resource, Subresource: raw.ObjectRef.Subresource,
		Namespace: raw.ObjectRef.Namespace, Name: raw.ObjectRef.Name,
		Code: raw.ResponseStatus.Code, Received: raw.RequestReceivedTimestamp, Answered: raw.StageTimestamp,
	}, nil
}
