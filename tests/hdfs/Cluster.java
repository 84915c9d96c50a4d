import java.util.Scanner;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;

/**
 * A cluster of HDFS with two namenodes and one datanode on the loopback interface; the first namenode is active.
 *
 * <p>Prints the ports of each namenode (RPC, HTTP) on a line. Then it reads commands, and answers each with a line:
 * `active N`, `standby N`, `safe N` and `unsafe N`. It ends with its input.
 */
public class Cluster {
  public static void main(String[] arguments) throws Exception {
    Configuration conf = new Configuration();
    conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
    conf.set("dfs.permissions.superusergroup", "admins");
    conf.setInt("dfs.ha.tail-edits.period", 1);
    conf.setInt("dfs.ls.limit", 100);
    conf.setBoolean("dfs.namenode.edits.noeditlogchannelflush", true);
    // A datanode that closes a file before the namenode knows of its block asks again after 400 ms.
    conf.setInt("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 5);
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf).nnTopology(MiniDFSNNTopology.simpleHATopology()).numDataNodes(1).build();
    cluster.waitActive();
    cluster.transitionToActive(0);
    cluster.getFileSystem(0).mkdirs(new org.apache.hadoop.fs.Path("/tests"));
    cluster.getFileSystem(0).setPermission(
        new org.apache.hadoop.fs.Path("/tests"), new org.apache.hadoop.fs.permission.FsPermission("777"));
    StringBuilder ports = new StringBuilder();
    for (int i = 0; i < 2; i++) {
      ports.append(cluster.getNameNodePort(i)).append(' ').append(cluster.getNameNode(i).getHttpAddress().getPort());
      ports.append(i == 0 ? " " : "");
    }
    System.out.println(ports);
    for (Scanner in = new Scanner(System.in); in.hasNextLine(); System.out.println("done")) {
      String[] words = in.nextLine().split(" ");
      int which = Integer.parseInt(words[1]);
      switch (words[0]) {
        case "active" -> {
          cluster.transitionToStandby(1 - which);
          cluster.transitionToActive(which);
        }
        case "standby" -> cluster.transitionToStandby(which);
        case "safe" -> cluster.getNameNodeRpc(which).setSafeMode(SafeModeAction.SAFEMODE_ENTER, false);
        case "unsafe" -> cluster.getNameNodeRpc(which).setSafeMode(SafeModeAction.SAFEMODE_LEAVE, false);
        default -> throw new IllegalArgumentException(words[0]);
      }
    }
    Runtime.getRuntime().halt(0);
  }
}
