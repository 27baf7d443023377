package waiting

import (
	"context"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web"
)

type webOptions struct {
	*cli.Plugin
	address        string
	port, leakPort int
	driver         string
	open           bool
	// browser opens a URL, and is replaced in tests.
	browser func(ctx context.Context, url string) error
}

func webCommand(s *cli.Plugin) *cobra.Command {
	o := &webOptions{Plugin: s, browser: openBrowser}
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Serve a live page on this machine: waiting objects, the reasons, and a picture of their holders",
		Long: `Serves one page on this machine, until interrupted: all PVs and claims, the pods that are held, fences, volumes in
flight and suspected leaks, by reason and age. For one object it shows a picture of its holders, the explanation of
"kubectl reclaim explain", and its history. It changes as the cluster does.

The page is read-only, and reads with your rights. It names the kinds that you may not list or watch, and leaves them
out.

Only programs of this machine that know the address reach the page: the address has a random token, which is new each
time. Do not share the address: its holder reads the cluster with your rights as long as the command runs.`,
		Example: `  # print the address of the page
  kubectl reclaim web

  # open it in the browser
  kubectl reclaim web --open

  # on a machine without a browser: forward the port, and open the printed address at home
  kubectl reclaim web --port=8001
  ssh -L 8001:127.0.0.1:8001 jump-host`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.address, "address", "127.0.0.1",
		"IP address to listen on. Only addresses of this machine itself (127.0.0.0/8, ::1) are possible.")
	fs.IntVar(&o.port, "port", 0, "Port to listen on. 0: a free one.")
	fs.BoolVar(&o.open, "open", false, "Open the page in the browser.")
	o.DriverFlag(cmd, &o.driver, "Show only the PVs, claims and volumes of this driver.")
	fs.IntVar(&o.leakPort, "leak-port", 8080,
		"Port of the sidecars' --http-endpoint, from which leak reports are read. 0: they are not read.")
	return cmd
}

func (o *webOptions) validate() error {
	ip := net.ParseIP(o.address)
	switch {
	case ip == nil:
		return fmt.Errorf("--address=%s: must be an IP address of this machine itself, such as 127.0.0.1 or ::1", o.address)
	case !ip.IsLoopback():
		return fmt.Errorf("--address=%s: %w", o.address, errNotLoopback)
	case o.port < 0 || o.port > 65535:
		return fmt.Errorf("--port=%d: must be a port number up to 65535, or 0 for a free one", o.port)
	case o.leakPort < 0 || o.leakPort > 65535:
		return fmt.Errorf("--leak-port=%d: must be a port number up to 65535, or 0 to read no leak reports", o.leakPort)
	}
	return nil
}

// errNotLoopback means that other machines could reach the page.
var errNotLoopback = errors.New("the page shows the cluster with your rights, and is served on this machine alone: " +
	"must be in 127.0.0.0/8, or ::1")

func (o *webOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	role, err := o.AsRole()
	if err != nil {
		return err
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	if err := o.CheckDriver(ctx, o.driver); err != nil {
		return err
	}
	on, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	token, at := web.Token(), on.Addr().String()
	url := "http://" + at + "/" + token + "/"
	server, err := web.New(config, web.Config{Prefix: token, Hosts: hostsOf(on.Addr()),
		Cluster: o.ClusterName(config.Host), Version: version.Get(), Role: role, Driver: o.driver, LeakPort: o.leakPort})
	if err != nil {
		return errors.Join(err, on.Close())
	}
	fmt.Fprintln(o.Out, url)
	fmt.Fprintln(o.ErrOut, "The page is there until you press Ctrl-C. Its address is like a password: do not pass it on.")
	if !o.open {
		fmt.Fprintln(o.ErrOut, "To have the browser open it: kubectl reclaim web --open")
	} else {
		remove, err := o.openPage(ctx, url)
		if err != nil {
			fmt.Fprintf(o.ErrOut, "The browser cannot be started (%v): open the address yourself.\n", err)
		}
		defer remove()
	}
	return server.Serve(ctx, on)
}

// hostsOf returns the values of the header Host with which a local browser reaches a listener.
func hostsOf(at net.Addr) []string {
	_, port, _ := net.SplitHostPort(at.String())
	return []string{at.String(), net.JoinHostPort("localhost", port)}
}

// openPage opens the page in the browser through a file that only this user can read. Other users of the machine can
// see the arguments of programs, so the token must not be an argument. remove removes the file.
func (o *webOptions) openPage(ctx context.Context, url string) (remove func(), err error) {
	dir, err := os.MkdirTemp("", cli.Name+"-web-") // only this user can read it
	if err != nil {
		return func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // a leftover file is useless, because the token ends with the program
	file := filepath.Join(dir, "open.html")
	text := `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=` + url +
		`"><title>kubectl reclaim web</title><a href="` + url + `">kubectl reclaim web</a>`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return remove, err
	}
	return remove, o.browser(ctx, (&neturl.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String())
}

// openBrowser starts the program that opens URLs, and does not wait for its end.
func openBrowser(ctx context.Context, url string) error {
	name := "xdg-open"
	args := []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...) // #nosec G204 -- the URL is of this program
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // the browser may outlive the command
	return nil
}
