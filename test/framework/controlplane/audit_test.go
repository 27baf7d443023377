//go:build unix

package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	auditGet    = `{"kind":"Event","auditID":"1","stage":"ResponseComplete","verb":"get","responseStatus":{"code":200}}`
	auditStart  = `{"kind":"Event","auditID":"2","stage":"ResponseStarted","verb":"watch"}`
	auditFinish = `{"kind":"Event","auditID":"2","stage":"ResponseComplete","verb":"watch"}`
	auditDelete = `{"kind":"Event","auditID":"3","stage":"ResponseComplete","verb":"delete"}`
)

func TestReadAuditLog(t *testing.T) {
	for name, tc := range map[string]struct {
		log     string
		want    string
		wantErr string
	}{
		"empty":                         {},
		"whole lines":                   {log: auditGet + "\n" + auditDelete + "\n", want: "get delete"},
		"last line half written":        {log: auditGet + "\n" + auditDelete[:40], want: "get"},
		"last line without its newline": {log: auditGet + "\n" + auditDelete, want: "get"},
		"a watch counts once": {log: auditStart + "\n" + auditGet + "\n" + auditFinish + "\n",
			want: "watch get"},
		"cut by a kill, then continued":     {log: auditGet[:50] + auditDelete + "\n", want: "delete"},
		"the marker inside a value is text": {log: `{"kind":"Event","auditID":"4","verb":"get","userAgent":"{\"kind\":\"Event\""}` + "\n", want: "get"},
		"no audit log":                      {log: auditGet + "\nhello\n", wantErr: "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(tc.log), 0o600); err != nil {
				t.Fatal(err)
			}
			events, err := ReadAuditLog(path, nil)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var verbs []string
			for _, e := range events {
				verbs = append(verbs, e.Verb)
			}
			if got := strings.Join(verbs, " "); got != tc.want {
				t.Errorf("read %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAuditLogReadingContinues writes lines between two readings, one of them in two parts.
func TestAuditLogReadingContinues(t *testing.T) {
	cp := &ControlPlane{options: Options{AuditLog: true}, folder: folder{path: t.TempDir()}}
	events := func(user string) string {
		t.Helper()
		list, err := cp.AuditEventsOf(user, nil)
		if err != nil {
			t.Fatal(err)
		}
		var verbs []string
		for _, e := range list {
			verbs = append(verbs, e.Verb)
		}
		return strings.Join(verbs, " ")
	}
	line := func(id, user, verb string) string {
		return `{"kind":"Event","auditID":"` + id + `","verb":"` + verb + `","user":{"username":"` + user + `"}}` + "\n"
	}
	second := line("2", "me", "patch")
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(cp.AuditLog(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(line("1", "me", "get") + second[:20])
	if got := events("me"); got != "get" {
		t.Errorf("read %q, want the whole line alone", got)
	}
	write(second[20:] + line("3", "other", "delete") + line("1", "me", "get"))
	if got := events("me"); got != "get patch" {
		t.Errorf("read %q, want each request once", got)
	}
	if got := events("other"); got != "delete" {
		t.Errorf("read %q of another user", got)
	}
	read := cp.audit.of["me"].offset
	if info, err := os.Stat(cp.AuditLog()); err != nil || info.Size() != read {
		t.Errorf("the log was read up to %d of %d bytes: %v", read, info.Size(), err)
	}
}
