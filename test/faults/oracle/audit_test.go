package oracle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const auditLines = `{"kind":"Event","verb":"patch","user":{"username":"s"},"objectRef":{"resource":"persistentvolumes",` +
	`"name":"mine"},"responseStatus":{"code":200},"responseObject":{"kind":"PersistentVolume",` +
	`"metadata":{"name":"mine","uid":"u","resourceVersion":"7","finalizers":["a/b"]},` +
	`"spec":{"persistentVolumeReclaimPolicy":"Delete","csi":{"driver":"d","volumeHandle":"h"},` +
	`"claimRef":{"name":"c","uid":"x"}},"status":{"phase":"Bound"}},` +
	`"requestReceivedTimestamp":"2030-01-01T00:00:02.000000Z",` +
	`"stageTimestamp":"2030-01-01T00:00:03.000000Z"}` + "\n" +
	`{"kind":"Event","verb":"get","user":{"username":"s"},"objectRef":{"resource":"persistentvolumes",` +
	`"name":"mine"},"responseStatus":{"code":404},` +
	`"requestReceivedTimestamp":"2030-01-01T00:00:01.000000Z",` +
	`"stageTimestamp":"2030-01-01T00:00:01.500000Z"}` + "\n" +
	`{"kind":"Event","verb":"get","objectRef":{"resource":"persistentvolumes","name":"another"},` +
	`"responseStatus":{"code":200}}` + "\n" +
	`{"kind":"Event","verb":"delete","objectRef":{"resource":"volumeattachments","name":"mine"},` +
	`"responseStatus":{"code":200},"responseObject":{"kind":"Status","details":{"name":"mine",` +
	`"uid":"v"}},"requestReceivedTimestamp":"2030-01-01T00:00:04.000000Z",` +
	`"stageTimestamp":"2030-01-01T00:00:04.500000Z"}` + "\n" +
	`{"kind":"Event","verb":"get","objectRef":{"name":"mi`

func TestReadAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	must.OK(t, os.WriteFile(path, []byte(auditLines), 0o600))
	requests := must.Get(ReadAudit(path, "mine"))(t)
	if len(requests) != 3 || requests[0].Code != 404 || requests[0].Object != nil {
		t.Fatalf("got %+v", requests)
	}
	if got := requests[1].Object.String(); got != "PV mine Bound Delete claimed +b" {
		t.Errorf("got %q", got)
	}
	if o := requests[2].Object; o == nil || o.UID != "v" || o.Kind != Attachment {
		t.Errorf("got %+v", o)
	}
	must.OK(t, os.WriteFile(path, []byte("mine {\n"), 0o600))
	if _, err := ReadAudit(path, "mine"); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("got %v, want the line that is damaged", err)
	}
}
