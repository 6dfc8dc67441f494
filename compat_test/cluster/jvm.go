package cluster

import (
	"fmt"
	"path/filepath"

	"github.com/delaygate/delaygate/compat_test/process"
)

// JVMFlags are what every RocketMQ process needs on Java 17, plus what keeps it small and quick to start.
func JVMFlags(home string, heapMiB int) []string {
	return []string{
		"-XX:+IgnoreUnrecognizedVMOptions",
		"--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
		"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData",
		fmt.Sprintf("-Xmx%dm", heapMiB),
		"-Drocketmq.home.dir=" + home, "-Duser.home=" + home,
	}
}

// javaSpec runs a main class of a version's class path with its home in dir.
func javaSpec(name, dir, libs string, heapMiB int, flags []string, main string, args ...string) process.Spec {
	all := append(JVMFlags(dir, heapMiB), flags...)
	all = append(all, "-cp", filepath.Join(libs, "*"), main)
	return process.Spec{
		Name: name, Path: "java", Args: append(all, args...), Dir: dir,
		Env: []string{"ROCKETMQ_HOME=" + dir}, Log: filepath.Join(dir, "out.log"),
	}
}

// logback is the configuration that 4.9 brokers and name servers insist on.
const logback = `<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>%s</file>
    <encoder><pattern>%%d{HH:mm:ss.SSS} %%-5level %%logger{0} - %%msg%%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
`
