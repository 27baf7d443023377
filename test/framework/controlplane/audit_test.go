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
