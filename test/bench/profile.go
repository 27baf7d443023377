//go:build unix

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// profile keeps a profile of ours (net/http/pprof) at a size, if profiles are wanted.
func (s *session) profile(ctx context.Context, program running, name, size string) error {
	car, ok := program.(impatient)
	if !ok || s.Profiles == "" {
		return nil
	}
	body, err := car.Get(ctx, "/debug/pprof/"+name)
	if err != nil {
		return fmt.Errorf("profile csi-reclaimer: %w", err)
	}
	if err := os.MkdirAll(s.Profiles, 0o755); err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	file := filepath.Join(s.Profiles, fmt.Sprintf("%s-%s-%d.pprof", name, size, s.env.rounds.Load()))
	s.say("  %s", file)
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	return nil
}
