// Package web tests the page of kubectl reclaim web as a person uses it: the plugin serves it from a real control
// plane, and Chromium shows it. Pictures of each view are kept in .build/screenshots.
//
//	go -C test/web test -race ./...
//
// It is a separate module because of the packages that drive the browser.
package web
